"""A selection that ended half-way goes on from its checkpoint, to the same end."""

import numpy as np
import pytest

import fairnepv
from cases import random_views
from fairnepv import InputError

DATA = dict(zip("ab", random_views(np.random.default_rng(8), 90, [9, 8]), strict=True))


class Crash(BaseException):
    """Nobody catches it, as nobody can catch the end of a process."""


class Listener:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, crash_at=None):
        self.steps, self.crash_at = [], crash_at

    def __call__(self, step):
        self.steps.append((step.stage, step.step))
        if len(self.steps) == self.crash_at:
            raise Crash


def _choose(listener=None, checkpoint=None, **options):
    given = {"method": "nepv", "gap": 1e-3, **options}
    return fairnepv.select(DATA, 6, checkpoint=checkpoint, progress=listener, **given)


@pytest.mark.parametrize("method", ["greedy", "nepv", "auto", "softmax", "saturate", "exact"])
def test_a_crash_at_any_step_changes_nothing(tmp_path, monkeypatch, method):
    monkeypatch.setattr("fairnepv.checkpoint._SHARE", 0.0)  # every step is written
    options = {"method": method, "effort": "fast"}
    if method == "exact":
        options |= {"node_limit": 20}
    whole = Listener()
    expected = _choose(whole, **options)
    count = len(whole.steps)
    for crash_at in sorted({1, 2, count // 3, count // 2, count - 1, count} - {0}):
        path = tmp_path / f"{crash_at}.state"
        with pytest.raises(Crash):
            _choose(Listener(crash_at), path, **options)
        rest = Listener()
        found = _choose(rest, path, **options)
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.scores == expected.scores
        assert found.upper_bound == expected.upper_bound
        assert found.status is expected.status
        # The step of the crash itself had not been written yet.
        assert len(rest.steps) <= count - crash_at + 2


def test_a_selection_that_is_done_takes_no_step_again(tmp_path):
    expected = _choose(checkpoint=tmp_path / "state")
    again = Listener()
    found = _choose(again, tmp_path / "state")
    assert not again.steps
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.upper_bound == expected.upper_bound


def test_what_a_time_limit_cut_short_goes_on(tmp_path):
    expected = _choose()
    cut = _choose(checkpoint=tmp_path / "state", time_limit=1e-9)
    assert cut.status is fairnepv.Status.TIME_LIMIT
    found = _choose(checkpoint=tmp_path / "state")
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.upper_bound == expected.upper_bound


@pytest.mark.parametrize(
    "change",
    [
        {"tau": 0.1},
        {"gap": 0.5},
        {"include": [3]},
        {"exclude": [3]},
        {"method": "greedy"},
        {"random_state": 1},
        {"groups": np.arange(90) % 2},
        {"quality": np.linspace(1, 2, 90)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_problem_is_refused(tmp_path, change):
    _choose(checkpoint=tmp_path / "state")
    with pytest.raises(InputError, match="is of another problem: the data, k or an option differs"):
        _choose(checkpoint=tmp_path / "state", **change)


def test_other_rows_are_refused(tmp_path, monkeypatch):
    _choose(checkpoint=tmp_path / "state")
    monkeypatch.setitem(DATA, "a", DATA["a"] + 1e-9)
    with pytest.raises(InputError, match="of another problem"):
        _choose(checkpoint=tmp_path / "state")


def test_files_that_cannot_be_checkpoints_are_refused(tmp_path):
    (tmp_path / "text").write_text("not a checkpoint, but longer than a page header would be" * 9)
    for path in (tmp_path / "text", tmp_path, tmp_path / "no" / "folder"):
        with pytest.raises(InputError, match=r"checkpoint .* cannot be used"):
            _choose(checkpoint=path)
    assert (tmp_path / "text").read_text().startswith("not a checkpoint")


def test_several_sizes_have_no_common_checkpoint(tmp_path):
    with pytest.raises(InputError, match="checkpoint is for one size"):
        fairnepv.select(DATA, [3, 4], checkpoint=tmp_path / "state")


class Interrupter(Listener):
    """Ctrl-C at a step, which the selection absorbs."""

    def __call__(self, step):
        self.steps.append((step.stage, step.step))
        if len(self.steps) == self.crash_at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("hierarchical", [False, 3])
def test_an_interruption_at_any_step_changes_nothing(tmp_path, hierarchical):
    """Also at the first step of a run, when nothing of it is written but later runs are."""
    options = {"method": "nepv", "effort": "fast", "hierarchical": hierarchical}
    whole = Listener()
    expected = _choose(whole, **options)
    first = [i + 1 for i, (_, step) in enumerate(whole.steps) if step == 0]
    for at in sorted({*first, 2, len(whole.steps) // 2}):
        path = tmp_path / f"{at}.state"
        _choose(Interrupter(at), path, **options)
        found = _choose(None, path, **options)
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.status is expected.status


def test_a_time_limit_within_a_shard_is_not_for_ever(tmp_path):
    options = {"method": "greedy", "certify": False, "hierarchical": 3}
    expected = _choose(**options)
    for limit in (1e-6, 1e-3, 3e-3):
        path = tmp_path / f"{limit}.state"
        _choose(checkpoint=path, time_limit=limit, **options)
        found = _choose(checkpoint=path, **options)
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.status is expected.status


def test_rows_of_equal_norms_are_told_apart(tmp_path):
    rng = np.random.default_rng(3)
    signs = [np.sign(rng.standard_normal((60, 12))) for _ in range(2)]
    for kind in (lambda x: x, lambda x: fairnepv.KernelView(x @ x.T / 12)):
        path = tmp_path / f"{kind(signs[0])!r:.9}.state"
        fairnepv.select({"a": kind(signs[0])}, 5, effort="fast", checkpoint=path)
        with pytest.raises(InputError, match="of another problem"):
            fairnepv.select({"a": kind(signs[1])}, 5, effort="fast", checkpoint=path)

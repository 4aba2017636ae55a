"""A selection that ended half-way goes on from its checkpoint, to the same end."""

import contextlib
import io
import os
import resource
import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest

import fairnepv
import fairnepv.loop.journal
from cases import random_views
from fairnepv import InputError, Status

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


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", ["greedy", "nepv", "auto", "softmax", "saturate", "exact"])
def test_a_crash_at_any_step_changes_nothing(tmp_path, monkeypatch, method):
    monkeypatch.setattr("fairnepv.loop.journal._SHARE", 0.0)  # every step is written
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
    assert cut.status is Status.TIME_LIMIT
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


def test_equal_numbers_under_other_names_are_told_apart(tmp_path):
    """The priorities are the same by name, and the rows are the same in their order."""
    a, b = random_views(np.random.default_rng(4), 30, [5, 5])
    options = {"method": "greedy", "certify": False, "priorities": {"a": 0.9, "b": 0.1}}
    options |= {"checkpoint": tmp_path / "state"}
    fairnepv.select({"a": a, "b": b}, 4, **options)
    with pytest.raises(InputError, match="of another problem"):
        fairnepv.select({"b": a, "a": b}, 4, **options)


def test_the_boundaries_of_shards_are_told_apart(tmp_path, monkeypatch):
    rows = random_views(np.random.default_rng(4), 60, [5])[0]
    options = {"method": "greedy", "certify": False, "hierarchical": 3}
    fairnepv.select({"a": rows}, 4, checkpoint=tmp_path / "state", **options)
    monkeypatch.setattr("fairnepv.api.search.shards_of", lambda *_: (0, 10, 20, 60))
    with pytest.raises(InputError, match="of another problem"):
        fairnepv.select({"a": rows}, 4, checkpoint=tmp_path / "state", **options)


def test_nobody_can_make_rows_that_pass_for_others(tmp_path):
    """Mirrored at any vector that is known, rows keep their norms and their products with it."""
    rows = random_views(np.random.default_rng(4), 30, [5])[0]
    known = np.random.default_rng(0).standard_normal(5)
    u = known / np.linalg.norm(known)
    options = {"method": "greedy", "certify": False, "calibration": "none"}
    options |= {"checkpoint": tmp_path / "state"}
    mirrored = 2.0 * np.outer(rows @ u, u) - rows
    probe = fairnepv.loop.journal.fingerprint_of
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "fairnepv.api.checkpoint.fingerprint_of", lambda *a: seen.append(a) or probe(*a)
        )
        fairnepv.select({"a": rows}, 4, **options)
        with pytest.raises(InputError, match="of another problem"):
            fairnepv.select({"a": mirrored}, 4, **options)
    (_, norms, _, products, *_), (_, other_norms, _, others, *_) = seen
    np.testing.assert_allclose(norms, other_norms)
    assert not np.allclose(products, others)


# --- files that somebody has touched --------------------------------------------------------------

PROBLEM = {"a": DATA["a"][:40], "b": DATA["b"][:40]}
TERMS = {"method": "exact", "effort": "fast", "certify": False, "node_limit": 40}


def _prove(path=None, listener=None):
    return fairnepv.select(PROBLEM, 6, checkpoint=path, progress=listener, **TERMS)


@pytest.fixture(scope="module")
def honest():
    return _prove()


@pytest.fixture(scope="module")
def half_way(tmp_path_factory):
    """A checkpoint in the middle of branch and bound."""
    path = tmp_path_factory.mktemp("half") / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairnepv.loop.journal._SHARE", 0.0)
        with pytest.raises(Crash):
            _prove(path, Listener(crash_at=9))
    return path.read_bytes()


def _sql(*statements):
    """Statements of whoever edits the file by hand."""

    def damage(path):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
            for statement in statements:
                file.execute(statement)

    return damage


def _arrays(change):
    """Another last state."""

    def damage(path):
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
            query = "select state from runs order by number desc"
            (blob,) = file.execute(query).fetchone()
            with np.load(io.BytesIO(blob)) as arrays:
                edited = change(dict(arrays))
            written = io.BytesIO()
            np.savez(written, **edited)
            last = "where number = (select max(number) from runs)"
            file.execute(f"update runs set state = ? {last}", (written.getvalue(),))

    return damage


def _without(arrays, name):
    return {key: array for key, array in arrays.items() if key != name}


def _flipped(position):
    def damage(path):
        content = bytearray(path.read_bytes())
        used = [i for i, byte in enumerate(content) if byte]
        content[used[int(position * len(used))]] ^= 0x55
        path.write_bytes(content)

    return damage


def _beside(ending, make):
    return lambda path: make(Path(f"{path}{ending}"))


def _as(make):
    """Something else in place of the file."""

    def damage(path):
        path.unlink()
        make(path)

    return damage


RECURSIVE = """create view runs as with recursive r(number) as (
    select 0 union all select number + 1 from r) select number, '' stage, 0 steps, 0.0 objective,
    null status, x'' state, x'' seal from r where number < 0"""
DAMAGES = {
    "nothing": lambda path: None,
    "no nodes left": _arrays(lambda a: {**a, "nodes": a["nodes"][:0], "bounds": a["bounds"][:0]}),
    "a bound below the score": _arrays(lambda a: {**a, "upper": np.array(-9.0)}),
    "another best set": _arrays(lambda a: {**a, "indices": np.arange(6)}),
    "rows that are none": _arrays(lambda a: {**a, "indices": a["indices"] + 10**9}),
    "not a number": _arrays(lambda a: {**a, "value": np.array(np.nan)}),
    "another shape": _arrays(lambda a: {**a, "nodes": a["nodes"][:, :3]}),
    "another kind": _arrays(lambda a: {**a, "nodes": a["nodes"].astype("U3")}),
    "an array too few": _arrays(lambda a: _without(a, "nodes")),
    "an array too many": _arrays(lambda a: {**a, "more": np.zeros(3)}),
    "a pickle": _arrays(lambda a: {**a, "value": np.array([os.system], dtype=object)}),
    "a huge array": _arrays(lambda a: {**a, "bounds": np.zeros(1 << 20)}),
    "said to be optimal": _sql("update runs set status = 'OPTIMAL'"),
    "said to be nonsense": _sql("update runs set status = 'BEST'"),
    "a status in bytes": _sql("update runs set status = x'4e6f6e65'"),
    "no status": _sql("update runs set status = null"),
    "steps of 2^62": _sql("update runs set steps = 4611686018427387904"),
    "steps in words": _sql("update runs set steps = 'many'"),
    "an infinite objective": _sql("update runs set objective = 9e999"),
    "no objective": _sql("update runs set objective = null"),
    "another stage": _sql("update runs set stage = 'exact'"),
    "a stage that is no text": _sql("update runs set stage = cast(x'ff00fe' as text)"),
    "no state": _sql("update runs set state = null"),
    "an empty state": _sql("update runs set state = x''"),
    "a state of zeros": _sql("update runs set state = zeroblob(4000000)"),
    "half a state": _sql("update runs set state = substr(state, 1, length(state) / 2)"),
    "a state as text": _sql("update runs set state = 'state'"),
    "no seal": _sql("update runs set seal = null"),
    "a seal as text": _sql("update runs set seal = 'sealed'"),
    "a seal of another": _sql("update runs set seal = (select seal from about)"),
    "a number later": _sql("update runs set number = number + 1 where number = 1"),
    "two numbers the other way round": _sql(
        "update runs set number = number - 9", "update runs set number = -8 - number"
    ),
    "no first run": _sql("delete from runs where number = 0"),
    "no runs": _sql("delete from runs"),
    "no fingerprint": _sql("delete from about"),
    "two fingerprints": _sql("insert into about select * from about"),
    "a null fingerprint": _sql("update about set fingerprint = null"),
    "another fingerprint": _sql("update about set fingerprint = 'a' || fingerprint"),
    "a long fingerprint": _sql("update about set fingerprint = zeroblob(3000000)"),
    "no table about": _sql("drop table about"),
    "no table runs": _sql("drop table runs"),
    "a table more": _sql("create table more (x)"),
    "a view": _sql("create view more as select * from runs"),
    "a view without end": _sql("drop table runs", RECURSIVE),
    "a trigger": _sql("create trigger t after insert on runs begin delete from runs; end"),
    "an index": _sql("create index i on runs (abs(steps))"),
    "a generated column": _sql("alter table about add column x as (zeroblob(1000000000))"),
    "a column more": _sql("alter table runs add column x default 3"),
    "other columns": _sql("drop table about", "create table about (fingerprint, seal)"),
    "a virtual table": _sql("create virtual table v using fts5(x)"),
    "a thousand tables": _sql(
        "pragma writable_schema = on",
        "with recursive r(i) as (select 0 union all select i + 1 from r where i < 1000) insert "
        "into sqlite_master select 'table', 't' || i, 't' || i, 2, "
        "'CREATE TABLE t' || i || '(x)' from r",
    ),
    "long SQL": _sql(f"create table more (x default '{'x' * 5000}')"),
    "packed anew": _sql("vacuum"),
    "a write-ahead log": _sql("pragma journal_mode = wal", "create table more (x)"),
    "a file -wal": _beside("-wal", lambda path: path.write_bytes(b"")),
    "a pipe -journal": _beside("-journal", os.mkfifo),
    "a link -journal": _beside("-journal", lambda path: path.symlink_to("/etc/hostname")),
    "an empty file": _as(Path.touch),
    "zeros": _as(lambda path: path.write_bytes(bytes(8192))),
    "cut after the header": lambda path: os.truncate(path, 100),
    "cut in the first page": lambda path: os.truncate(path, 2000),
    "cut in the middle": lambda path: os.truncate(path, path.stat().st_size // 2),
    "short of a byte": lambda path: os.truncate(path, path.stat().st_size - 1),
    "longer": lambda path: path.write_bytes(path.read_bytes() + bytes(999)),
    "a folder": _as(Path.mkdir),
    "a pipe": _as(os.mkfifo),
    "a device": _as(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": _as(lambda path: path.symlink_to(path)),
    **{f"a flip at {j} of 17": _flipped(j / 17) for j in range(17)},
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_checkpoint_never_claims_what_was_not_found(
    tmp_path, monkeypatch, honest, half_way, damage
):
    """Refused in a sentence that names it, or the same end as without."""
    monkeypatch.setattr("fairnepv.loop.journal._LARGEST", 1 << 21)  # larger damages take longer
    path = tmp_path / "state"
    path.write_bytes(half_way)
    damage(path)
    refusal, found = None, None
    try:
        found = _prove(path)
    except InputError as error:
        refusal = str(error)
    if found is None:
        assert refusal.startswith(f"checkpoint {path} ")
        assert "\n" not in refusal
        return
    assert found.status is honest.status
    assert found.indices.tolist() == honest.indices.tolist()
    assert (found.fair_score, found.upper_bound) == (honest.fair_score, honest.upper_bound)


def test_what_was_done_is_found_in_a_checkpoint_that_nobody_touched(tmp_path, half_way):
    (tmp_path / "state").write_bytes(half_way)
    whole, rest = Listener(), Listener()
    _prove(None, whole)
    _prove(tmp_path / "state", rest)
    assert len(rest.steps) < len(whole.steps)


def test_a_journal_beside_a_checkpoint_removes_no_other_file(tmp_path, half_way):
    """SQLite undoes half a writing by a journal, and removes a file that its last lines name."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "state").write_bytes(half_way)
    name = str(tmp_path / "precious").encode()
    size, check = len(name).to_bytes(4, "big"), sum(name).to_bytes(4, "big")
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + (0).to_bytes(4, "big") + bytes(4) + (2).to_bytes(4, "big")
    head += (512).to_bytes(4, "big") + (4096).to_bytes(4, "big")
    end = (0x40000000 // 4096 + 1).to_bytes(4, "big") + name + size + check + magic
    (tmp_path / "state-journal").write_bytes(head.ljust(512, bytes(1)) + end)
    with pytest.raises(InputError, match="state-journal beside it"):
        _prove(tmp_path / "state")
    assert (tmp_path / "precious").read_text() == "kept"


def test_one_selection_at_a_time_uses_a_checkpoint(tmp_path, monkeypatch):
    """Also while both only read, or neither could write later."""
    monkeypatch.setattr("fairnepv.loop.journal._PATIENCE", 0.0)
    _prove(tmp_path / "state")
    seen = []

    def second(path, *rest):
        seen.append(fairnepv.loop.journal.Journal(path, *rest))
        with pytest.raises(InputError, match="another selection is using the checkpoint"):
            fairnepv.loop.journal.Journal(path, *rest)
        return seen[0]

    monkeypatch.setattr("fairnepv.api.checkpoint.Journal", second)
    assert not _prove(tmp_path / "state").run_notes
    assert len(seen) == 1


def test_states_of_two_selections_are_not_mixed(tmp_path, monkeypatch):
    """The same problem twice: what followed a bound that was cut short follows no other."""
    options = {"method": "greedy"}
    _choose(checkpoint=tmp_path / "whole", **options)
    monkeypatch.setattr("fairnepv.api.select.BOUND", 1e-9)  # so little time for the bound
    _choose(checkpoint=tmp_path / "cut", time_limit=3600, **options)
    monkeypatch.undo()
    with contextlib.closing(sqlite3.connect(tmp_path / "whole", isolation_level=None)) as file:
        file.execute("attach ? as cut", (str(tmp_path / "cut"),))
        file.execute("delete from runs where number > 1")
        file.execute("insert into runs select * from cut.runs where number = 2")
    with pytest.raises(InputError, match=r"damaged or changed .* \(run 2\); remove it"):
        _choose(checkpoint=tmp_path / "whole", **options)


# --- whose checkpoint it is -----------------------------------------------------------------------


def test_a_checkpoint_of_somebody_else_is_refused(tmp_path, monkeypatch, half_way):
    (tmp_path / "state").write_bytes(half_way)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    with pytest.raises(InputError, match=r"is not sealed with your key .*/home/fairnepv/key: some"):
        _prove(tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == half_way


def test_the_key_is_for_one_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    key = fairnepv.loop.journal.own_key()
    assert len(key) == 32
    assert fairnepv.loop.journal.own_key() == key
    assert stat.S_IMODE((tmp_path / "fairnepv").stat().st_mode) == 0o700
    assert [f.name for f in (tmp_path / "fairnepv").iterdir()] == ["key"]
    assert stat.S_IMODE((tmp_path / "fairnepv/key").stat().st_mode) == 0o600


def test_of_two_first_keys_one_remains(tmp_path, monkeypatch):
    """Both processes saw none; the other one was quicker."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    link = os.link

    def late(source, target):
        Path(target).write_bytes(b"k" * 32)
        Path(target).chmod(0o600)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert fairnepv.loop.journal.own_key() == b"k" * 32


def _key_of(content, mode=0o600):
    def make(home):
        (home / "fairnepv").mkdir()
        (home / "fairnepv/key").write_bytes(content)
        (home / "fairnepv/key").chmod(mode)

    return make


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_key_of(b"k" * 32, 0o644), "others may read it"),
        (_key_of(b""), "it is no key"),
        (lambda home: (home / "fairnepv/key").mkdir(parents=True), "it is no key"),
        (lambda home: (home / "fairnepv").touch(), "Not a directory|File exists"),
    ],
    ids=["public", "empty", "folder", "no folder"],
)
def test_a_key_that_is_none_is_refused_before_any_work(tmp_path, monkeypatch, make, reason):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    make(tmp_path)
    listener = Listener()
    with pytest.raises(InputError, match=rf"fairnepv/key cannot be used \(({reason})\); set XDG"):
        _prove(tmp_path / "state", listener)
    assert not listener.steps


def test_a_relative_state_folder_is_not_meant(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    fairnepv.loop.journal.own_key()
    assert (tmp_path / ".local/state/fairnepv/key").is_file()
    monkeypatch.setattr(os.path, "expanduser", lambda text: text)  # a user without a home
    with pytest.raises(InputError, match=r"no home folder .* set XDG_STATE_HOME"):
        fairnepv.loop.journal.own_key()


# --- a full disk, and little time -----------------------------------------------------------------


@pytest.mark.parametrize("pages", [4, 8, 10])
def test_a_full_disk_costs_the_checkpoint_and_not_the_selection(tmp_path, monkeypatch, pages):
    expected, opened = _choose(effort="fast"), fairnepv.loop.journal._open

    def full(path):
        file = opened(path)
        file.execute(f"pragma max_page_count = {pages}")
        return file

    monkeypatch.setattr("fairnepv.loop.journal._open", full)
    found = _choose(checkpoint=tmp_path / "state", effort="fast")
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.upper_bound == expected.upper_bound
    said = [note for note in found.run_notes if "state could not be written any more" in note]
    assert len(said) == 1
    assert "disk is full" in said[0]
    monkeypatch.undo()
    again = _choose(checkpoint=tmp_path / "state", effort="fast")  # there is room again
    assert again.indices.tolist() == expected.indices.tolist()
    assert again.run_notes == expected.run_notes


def test_a_checkpoint_that_cannot_be_written_at_all_is_not_left_empty(tmp_path):
    _choose(checkpoint=tmp_path / "other", effort="fast")  # which makes the key
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(InputError, match=r"state cannot be used .*; name another file"):
            _choose(checkpoint=tmp_path / "state", effort="fast")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("hierarchical", [False, 3])
def test_every_part_of_a_selection_makes_a_step(tmp_path, hierarchical):
    """However short the limit, and however long the way to where the last part ended."""
    options = {"method": "nepv", "effort": "fast", "hierarchical": hierarchical}
    whole = Listener()
    expected = _choose(whole, **options)
    for _ in whole.steps:
        found = _choose(checkpoint=tmp_path / "state", time_limit=1e-9, **options)
        if found.status is not Status.TIME_LIMIT:
            break
    assert found.status is expected.status
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.upper_bound == expected.upper_bound

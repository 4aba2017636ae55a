"""Saved selections: what comes back is what was there, and a file that was made up is refused."""

import copy
import json
import pickle
import stat
from typing import Any

import numpy as np
import pytest

import fairnepv
from fairnepv.api.stored import arrays_of
from refusals import refused

N, K = 40, 6
IDS = [f"id-{row}" for row in range(N)]
GROUPS = ["a", "b"] * (N // 2)


def data():
    rng = np.random.default_rng(3)
    return {"text": rng.standard_normal((N, 9)), "vision": rng.standard_normal((N, 8))}


KEPT: dict = {}


def found(**options):
    """Selected once: no test changes one."""
    key = str(options)
    if key not in KEPT:
        KEPT[key] = fairnepv.select(data(), K, **options)
    return KEPT[key]


def weights():
    return np.random.default_rng(1).uniform(0.5, 1.0, N)


LONG = np.array([*IDS[:-1], "x" * 200], dtype=np.dtypes.StringDType())
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "ids": {"ids": IDS},
    "long ids": {"ids": LONG},
    "bytes": {"ids": np.array(IDS, dtype="S")},
    "dates": {"ids": np.arange(N).astype("M8[D]")},
    "numbers": {"ids": np.arange(N) + 10**12},
    "representative": {"objective": "representative"},
    "efficiency": {"calibration": "efficiency"},
    "factors": {"calibration": {"text": 2.0, "vision": 1.0}},
    "no bound": {"certify": False},
    "exact": {"method": "exact"},
    "nepv": {"method": "nepv"},
    "quotas": {"groups": GROUPS, "quotas": {"a": (1, 3)}},
    "priorities": {"priorities": {"text": 0.7, "vision": 0.3}},
    "quality": {"quality": weights()},
    "floors": {"floors": {"text": -1.0}},
    "rules": {"include": [3], "exclude": [7, 9]},
    "shards": {"hierarchical": 2},
    "hardly a ridge": {"eps": 1e-12, "calibration": "none"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_what_comes_back_is_what_was_there(options, tmp_path):
    there = found(**options)
    there.save(tmp_path / "s.npz")
    back = fairnepv.load(tmp_path / "s.npz")
    assert back == there
    assert hash(back) == hash(there)
    assert repr(back) == repr(there)
    stored = pickle.loads(pickle.dumps(there)).__dict__
    assert set(back.__dict__) == set(stored)
    for name in ("upper_bound", "efficiency", "random_efficiency", "proven", "status", "seconds"):
        assert getattr(back, name) == getattr(there, name)
    for name in ("trace", "notes", "coverage", "view_weights", "calibration", "has_ids"):
        assert getattr(back, name) == getattr(there, name)
    for name, gains in there.gains.items():
        np.testing.assert_array_equal(back.gains[name], gains)
    assert back.ids.dtype == there.ids.dtype
    assert back.ids.tolist() == there.ids.tolist()
    assert [list(own) for own in back.isolated.values()] == [
        list(own) for own in there.isolated.values()
    ]
    assert back.problem is None
    assert back.budget == there.budget


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_its_certificate_verifies_against_the_data(options, tmp_path):
    there = found(**options)
    if there.certificate is None:
        pytest.skip("no bound was asked for")
    there.save(tmp_path / "s.npz")
    back = fairnepv.load(tmp_path / "s.npz")
    quality = {"quality": options["quality"]} if "quality" in options else {}
    verified = fairnepv.verify_bound(data(), back.certificate, **quality)
    assert verified.holds
    assert verified.upper_bound <= back.certificate.upper_bound + 1e-9


def test_its_settings_find_it_again(tmp_path):
    there = found(ids=IDS, calibration="efficiency")
    there.save(tmp_path / "s.npz")
    back = fairnepv.load(tmp_path / "s.npz")
    assert fairnepv.select(data(), ids=IDS, **back.settings) == there
    assert fairnepv.score(data(), back.indices, calibration=back.calibration).scores == (
        pytest.approx(there.scores)
    )
    assert fairnepv.select(data(), K + 1, ids=IDS, include=back).indices[:K].tolist() == list(back)


def test_a_comparison_comes_back_with_one_certificate(tmp_path):
    there = fairnepv.compare(data(), K, methods=["auto", "nepv", "random"])
    there.save(tmp_path / "c.npz")
    back = fairnepv.load(tmp_path / "c.npz")
    assert isinstance(back, fairnepv.Comparison)
    assert back == there
    assert len({id(row.certificate) for row in back}) == 1
    assert back.to_rows() == fairnepv.Comparison(tuple(there)).to_rows()
    assert fairnepv.verify_bound(data(), back["auto"]).holds


def test_what_needs_the_data_says_so(tmp_path):
    found().save(tmp_path / "s.npz")
    back = fairnepv.load(tmp_path / "s.npz")
    for task in (fairnepv.explain, fairnepv.assign, fairnepv.stability):
        assert "needs the data" in refused(task, back)


def test_it_knows_which_views_stood_in_another_order(tmp_path):
    """Rows of such a view are not those that its numbers count."""
    turned = {**data(), "vision": data()["vision"][::-1]}
    there = fairnepv.select(turned, K, ids={"text": IDS, "vision": IDS[::-1]}, certify=False)
    there.save(tmp_path / "s.npz")
    for back in (fairnepv.load(tmp_path / "s.npz"), pickle.loads(pickle.dumps(there))):
        assert "another order" in refused(back.apply, turned)
        assert back.apply({"text": IDS})["text"] == there.ids.tolist()


def test_an_interrupted_look_around_is_told(monkeypatch, tmp_path):
    there = found()

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(there), "neighbours", interrupted)
    seen = there.looked_around()
    monkeypatch.undo()
    seen.save(tmp_path / "s.npz")
    back = fairnepv.load(tmp_path / "s.npz")
    assert back.status is fairnepv.Status.INTERRUPTED
    assert np.isnan([*back.coverage.values()]).all()


# --- the file -------------------------------------------------------------------------------------


def test_it_appears_whole_and_replaces_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "s.npz"
    found().save(str(path))
    first = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
    found().save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["s.npz"]

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(fairnepv.FairnepvError, match="cannot be written"):
        found(tau=0.06).save(path)
    monkeypatch.undo()
    assert fairnepv.load(path) == found()
    assert first[:2] == b"PK"
    assert [file.name for file in tmp_path.iterdir()] == ["s.npz"]


@pytest.mark.parametrize("name", ["s.csv", "s", "s.pkl", "nowhere/s.npz"])
def test_places_that_are_none_are_refused_before_anything(name, tmp_path):
    refused(found().save, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_same_result_is_the_same_file(tmp_path):
    there = found()
    there.save(tmp_path / "a.npz")
    there.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    fairnepv.load(tmp_path / "a.npz").save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / "s.npz"
    assert "s.npz" in refused(fairnepv.load, path)  # there is none
    path.write_bytes(b"no zip")
    assert "s.npz" in refused(fairnepv.load, path)
    np.savez(path, a=np.arange(3))
    assert "'about' is missing" in refused(fairnepv.load, path)
    np.savez(path, about=np.array([{}], dtype=object))
    assert "s.npz" in refused(fairnepv.load, path)  # a pickle, which is never loaded
    np.savez(path, about=np.array("[]"))
    refused(fairnepv.load, path)
    np.savez(path, about=np.array('{"format": "fairnepv bound 2"}'))
    assert "'fairnepv bound 2'" in refused(fairnepv.load, path)
    path.write_bytes(pickle.dumps(found()))
    refused(fairnepv.load, path)


def test_a_newer_version_is_told_apart_from_damage(tmp_path):
    save_changed(
        tmp_path / "s.npz", lambda about, arrays: about.update(format="fairnepv selections 2")
    )
    said = refused(fairnepv.load, tmp_path / "s.npz")
    assert "its format is version 2" in said
    assert "reads version 1" in said


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.99])
def test_a_file_that_was_cut_is_refused(share, tmp_path):
    path = tmp_path / "s.npz"
    found().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "s.npz" in refused(fairnepv.load, path)


def test_no_byte_that_is_turned_passes_for_another_selection(tmp_path):
    path = tmp_path / "s.npz"
    there = found()
    there.save(path)
    whole = bytearray(path.read_bytes())
    for at in np.random.default_rng(0).choice(len(whole), 60, replace=False):
        damaged = whole.copy()
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        try:
            back = fairnepv.load(path)
        except fairnepv.InputError:
            continue
        assert back == there  # it was a date in the directory of the archive, perhaps


# --- forged files ---------------------------------------------------------------------------------


def save_changed(path, change, there=None):
    """A file as ours, with something in it changed, and every checksum made to fit."""
    arrays = arrays_of(found(ids=IDS) if there is None else there)
    about = json.loads(str(arrays["about"]))
    change(about, arrays)
    np.savez(path, **{**arrays, "about": np.array(json.dumps(about))})


def of_row(change):
    return lambda about, arrays: change(about["selections"][0])


def of_bound(change):
    return lambda about, arrays: change(about["certificates"][0])


def of_array(name, change):
    def changed(about, arrays):
        arrays[name] = change(arrays[name].copy())

    return changed


def at(place, value):
    def changed(array):
        array[place] = value
        return array

    return changed


FORGED: dict[str, Any] = {
    "another objective": of_row(lambda r: r.update(objective="representative")),
    "no objective": of_row(lambda r: r.update(objective="magic")),
    "a better fair score": of_row(lambda r: r.update(fair_score=r["fair_score"] + 0.01)),
    "a better score": of_row(lambda r: r["scores"].update(text=0.05)),
    "a score that is a text": of_row(lambda r: r["scores"].update(text="0")),
    "a score that is none": of_row(lambda r: r["scores"].update(text=None)),
    "a score without end": of_row(lambda r: r["scores"].update(text={"number": "inf"})),
    "scores of no view": of_row(lambda r: r.update(scores={})),
    "scores of another view": of_row(lambda r: r["scores"].update(other=0.0)),
    "other weights": of_row(lambda r: r["view_weights"].update(text=0.9)),
    "weights of another view": of_row(lambda r: r["view_weights"].update(other=0.0)),
    "no such certificate": of_row(lambda r: r.update(certificate=3)),
    "certificate by truth": of_row(lambda r: r.update(certificate=True)),
    "without its certificate": of_row(lambda r: r.update(certificate=None)),
    "a status that is none": of_row(lambda r: r.update(status="GREAT")),
    "a status that is a number": of_row(lambda r: r.update(status=1)),
    "more in a row": of_row(lambda r: r.update(more=1)),
    "less in a row": of_row(lambda r: r.pop("seconds")),
    "seconds in words": of_row(lambda r: r.update(seconds="3")),
    "a smaller pool": of_row(lambda r: r["chosen_from"].update(n=5)),
    "another pool": of_row(lambda r: r["chosen_from"].update(n=N + 1)),
    "a pool of fractions": of_row(lambda r: r["chosen_from"].update(n=40.0)),
    "shards in words": of_row(lambda r: r["chosen_from"].update(shards="x")),
    "the first view in another order": of_row(
        lambda r: r["chosen_from"].update(reordered=["text"])
    ),
    "an order in words": of_row(lambda r: r["chosen_from"].update(reordered="vision")),
    "columns of another view": of_row(lambda r: r["chosen_from"]["views"].update(other=3)),
    "more of the pool": of_row(lambda r: r["chosen_from"].update(more=3)),
    "another k": of_row(lambda r: r["settings"].update(k=K + 1)),
    "another tau": of_row(lambda r: r["settings"].update(tau=0.06)),
    "tau in words": of_row(lambda r: r["settings"].update(tau="0.05")),
    "no tau": of_row(lambda r: r["settings"].pop("tau")),
    "another eps": of_row(lambda r: r["settings"]["eps"].update(text=0.2)),
    "eps of no view": of_row(lambda r: r["settings"].update(eps=0.1)),
    "an engine": of_row(lambda r: r["settings"].update(engine="ray://elsewhere:1")),
    "a file to write to": of_row(lambda r: r["settings"].update(checkpoint="/tmp/x")),
    "an option that is none": of_row(lambda r: r["settings"].update(shell="rm")),
    "another effort": of_row(lambda r: r["settings"].update(effort="magic")),
    "priorities": of_row(lambda r: r["settings"].update(priorities={"text": 0.9, "vision": 0.1})),
    "priorities below nothing": of_row(
        lambda r: r["settings"].update(priorities={"text": -1, "vision": 2})
    ),
    "another rule": of_row(lambda r: r["calibration"].update(rule="none")),
    "normalised, perhaps": of_row(lambda r: r["calibration"].update(normalize=1)),
    "other factors": of_row(lambda r: r["calibration"].update(factors={"text": 2.0})),
    "evidence that is not there": of_row(lambda r: r["calibration"].update(evidence=["text"])),
    "a step in words": of_row(lambda r: r["trace"][0].update(step="0")),
    "a step of more": of_row(lambda r: r["trace"][0].update(more=1)),
    "a step of less": of_row(lambda r: r["trace"][0].pop("objective")),
    "notes that are none": of_row(lambda r: r.update(run_notes=[3])),
    "proven in words": of_row(lambda r: r.update(proven="no")),
    "a bound of another status": of_bound(lambda c: c.update(status="GREAT")),
    "a gap in words": of_bound(lambda c: c.update(duality_gap="small")),
    "ranks of fractions": of_bound(lambda c: c["ranks"].update(text=8.5)),
    "ranks of another view": of_bound(lambda c: c["ranks"].update(other=8)),
    "an unknown rule": of_bound(lambda c: c["rules"].update(text="magic")),
    "weights of another bound": of_bound(lambda c: c["weights"].update(other=0.5)),
    "lots in words": of_bound(lambda c: c.update(random_scores=["high"])),
    "notes of a bound": of_bound(lambda c: c.update(notes="all is well")),
    "more in a bound": of_bound(lambda c: c.update(more=1)),
    "picks outside": of_array("0/indices", at(0, N)),
    "picks below": of_array("0/indices", at(0, -1)),
    "picks twice": of_array("0/indices", lambda a: at(0, a[1])(a)),
    "picks in fractions": of_array("0/indices", lambda a: a.astype(float)),
    "fewer picks": of_array("0/indices", lambda a: a[:-1]),
    "no picks": of_array("0/indices", lambda a: a[:0]),
    "ids twice": of_array("0/ids", lambda a: at(0, a[1])(a)),
    "fewer ids": of_array("0/ids", lambda a: a[:-1]),
    "ids in fractions": of_array("0/ids", lambda a: np.linspace(0, 1, len(a))),
    "ids as a document of something else": of_array("0/ids", lambda a: np.array('{"a": 1}')),
    "ids as a document of numbers": of_array("0/ids", lambda a: np.array("[1, 2, 3, 4, 5, 6]")),
    "other gains": of_array("0/gains", at((0, 0), 1.0)),
    "gains of nothing": of_array("0/gains", at((0, 0), np.nan)),
    "fewer gains": of_array("0/gains", lambda a: a[:, :1]),
    "neighbours of fewer": of_array("0/nearest", lambda a: a[:, :3]),
    "distances of nothing": of_array("0/distances", at(0, np.nan)),
    "a solution elsewhere": of_array("bound-0/support", at(0, N)),
    "a solution of fewer": of_array("bound-0/relaxed", lambda a: a[:-1]),
    "weights of a proof": of_array("bound-0/joint/weights", lambda a: a[:1]),
    "an array that nobody reads": lambda about, arrays: arrays.update(more=np.arange(3)),
    "no neighbours but distances": lambda about, arrays: arrays.pop("0/nearest"),
    "without a proof": lambda about, arrays: arrays.pop("bound-0/about"),
    "a version in words": lambda about, arrays: about.update(format="fairnepv selections one"),
    "no version": lambda about, arrays: about.pop("format"),
    "no selection": lambda about, arrays: about.update(selections=[]),
    "selections that are none": lambda about, arrays: about.update(selections=3),
    "two of one": lambda about, arrays: about.update(selections=about["selections"] * 2),
    "compared, perhaps": lambda about, arrays: about.update(compared=0),
    "more of it all": lambda about, arrays: about.update(more=1),
    "made by nobody": lambda about, arrays: about.update(made_by=3),
    "certificates that are none": lambda about, arrays: about.update(certificates=None),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
def test_what_was_made_up_is_refused(change, tmp_path):
    save_changed(tmp_path / "s.npz", change)
    said = refused(fairnepv.load, tmp_path / "s.npz")
    assert "s.npz holds no selection that can be read: " in said


def test_an_honest_file_made_so_is_read(tmp_path):
    """Or the test above would prove nothing."""
    save_changed(tmp_path / "s.npz", lambda about, arrays: about.update(made_by="0.0.9"))
    assert fairnepv.load(tmp_path / "s.npz") == found(ids=IDS)


def test_a_bound_that_is_too_low_is_read_and_does_not_hold(tmp_path):
    """Whether it is true is for the data to tell."""

    def lower(about, arrays):
        bound = json.loads(str(arrays["bound-0/about"]))
        bound["upper_bound"] -= 0.05
        arrays["bound-0/about"] = np.array(json.dumps(bound))

    save_changed(tmp_path / "s.npz", lower)
    back = fairnepv.load(tmp_path / "s.npz")
    assert not fairnepv.verify_bound(data(), back.certificate).holds


def test_nothing_in_a_file_is_shown_as_it_is(tmp_path):
    there = copy.copy(found())
    object.__setattr__(there, "run_notes", ("\x1b[2Jcleared",))
    there.save(tmp_path / "s.npz")
    back = fairnepv.load(tmp_path / "s.npz")
    assert "\x1b" not in repr(back)
    assert "\x1b" not in back._repr_html_()


@pytest.mark.parametrize("path", [None, 3, ""])
def test_what_is_no_path_is_refused(path):
    refused(fairnepv.load, path)
    refused(found().save, path)


# --- scored again ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["plain", "ids", "representative", "efficiency", "factors", "priorities", "quality"]
)
def test_its_scores_are_computed_again_from_the_data(name, tmp_path):
    options = CASES[name]
    found(**options).save(tmp_path / "s.npz")
    back = fairnepv.load(tmp_path / "s.npz")
    of_the_data = {key: options[key] for key in ("ids", "quality") if key in options}
    again = fairnepv.score(data(), back, **of_the_data)
    assert again.scores == pytest.approx(back.scores, abs=1e-12)
    assert again.fair_score == pytest.approx(back.fair_score, abs=1e-12)
    assert again.objective == back.objective


def test_rows_that_have_moved_are_found_by_id():
    there, order = found(ids=IDS), np.random.default_rng(5).permutation(N)
    moved = {name: rows[order] for name, rows in data().items()}
    again = fairnepv.score(moved, there, ids=np.array(IDS)[order])
    assert again.scores == pytest.approx(there.scores)
    assert fairnepv.score(moved, there).scores != pytest.approx(there.scores)  # by row


def test_what_is_given_is_not_that_of_the_selection():
    there = found()
    other = fairnepv.score(data(), there, tau=1.0, calibration="none")
    plain = fairnepv.score(data(), there.indices, tau=1.0, calibration="none")
    assert other == plain
    shares = fairnepv.score(data(), there, objective="representative")
    assert shares == fairnepv.score(data(), there.indices, objective="representative")


def test_a_selection_of_other_data_is_refused():
    few = {name: rows[:10] for name, rows in data().items()}
    assert "row numbers from 0 to 9" in refused(fairnepv.score, few, found())
    assert "no row has" in refused(fairnepv.score, few, found(ids=IDS), ids=IDS[10:20])
    assert "pass the quality" in refused(fairnepv.score, data(), found(quality=weights()))

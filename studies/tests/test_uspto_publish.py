"""Publish and verify: the round trip, and every tampering found and named."""

import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import add_features, make_corpus, write_view
from forging import check, difference, edit, forge, seal

from fairnepv import Calibration, certify
from fairnepv.concave import proof_arrays
from fairnepv.objective import UNITS
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.protocol import publication, published_files
from fairnepv_studies.protocol.differences import Difference
from fairnepv_studies.protocol.execution import carry_out
from fairnepv_studies.protocol.pool import open_pool
from fairnepv_studies.protocol.publication import corpus_record, items_csv, publish
from fairnepv_studies.protocol.run import Run
from fairnepv_studies.protocol.settings import Settings, make_settings
from fairnepv_studies.protocol.split import split, write_split


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with corpus/ and published/."""
    folder = tmp_path_factory.mktemp("publish")
    corpus = make_corpus(folder / "corpus", 60)
    add_features(corpus)
    write_split(corpus, split(corpus, seed=5))
    pool = open_pool(corpus)
    run = Run.start(corpus, "main", make_settings(pool, [4, 9], effort="fast", seeds=2))
    publish(carry_out(run, pool), pool, folder / "published")
    return folder


def of(results: list[dict[str, Any]], method: str) -> dict[str, Any]:
    """The first result of a selector, which is for k = 4."""
    return next(result for result in results if result["method"] == method)


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "made")


def test_the_round_trip_says_what_was_checked(made, command):
    code, out, err = command(f"uspto verify {made / 'published'} {made / 'corpus'}")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "ok  checksums: 14 files".replace("14", str(len(files(made)) - 1))
    for words in (
        "corpus: simulated uspto, 60 items",
        "split: seed 5 gives it; 48 items",
        "settings, which are the publisher's choice: Simulated uspto corpus, selection pool of",
        "48 items, tau = 0.05, eps = 0.1, unit-diagonal, effort fast",
        "features of text: by hand 1",
        "results: 20 selections scored again, none off by more than 1e-09",
        "tables: results.csv, results.tex, selections.csv",
        "bound for k = 4:",
        "bound for k = 9:",
    ):
        assert words in out


def test_features_may_be_published_and_are_compared(folder, command):
    corpus, published = folder / "corpus", folder / "published"
    line = f"uspto publish {corpus} --out {published} --force --features"
    assert command(line)[0] == 0
    names = {file.name for file in (published / "features").iterdir()}
    assert names == {"text.npz", "vision.npy"}
    said = "published features: features/text.npz, features/vision.npy, the same numbers"
    assert said in check(folder)
    (published / "features" / "more.npy").write_bytes(b"")
    seal(folder)
    assert "features/more.npy is not expected" in difference(folder)
    (published / "features" / "more.npy").unlink()
    vision = np.load(published / "features" / "vision.npy")
    np.save(published / "features" / "vision.npy", np.nextafter(vision, np.float16(9)))
    seal(folder)
    assert "features/vision.npy does not hold the features of the corpus" in difference(folder)
    (published / "features" / "vision.npy").unlink()
    seal(folder)
    assert "neither vision.npy nor vision.npz" in difference(folder)


def files(folder: Path) -> list[Path]:
    return [file for file in (folder / "published").rglob("*") if file.is_file()]


def test_the_sums_are_those_of_the_files(made):
    for line in (made / "published" / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((made / "published" / name).read_bytes()).hexdigest() == digest


def test_identifiers_and_parts_are_published(made):
    with (made / "published" / "items.csv").open() as file:
        rows = list(csv.DictReader(file))
    corpus = Corpus.open(made / "corpus")
    assert [row["id"] for row in rows] == [row["serial_number"] for row in rows] == corpus.ids
    pool = [int(row["row"]) for row in rows if row["part"] == "pool"]
    assert pool == open_pool(corpus).rows.tolist()
    assert sum(row["part"] == "test" for row in rows) == 6


def test_the_manifest_says_what_others_need(made):
    manifest = json.loads((made / "published" / "manifest.json").read_text())
    assert manifest["simulated"] is True
    assert "Simulated uspto" in manifest["what"]
    assert manifest["split"]["seed"] == 5
    assert manifest["features"]["text"]["encoder"] == "by hand"
    settings = manifest["settings"]
    assert (settings["tau"], settings["eps"], settings["effort"]) == (0.05, 0.1, "fast")
    assert manifest["environment"][0]["packages"]["numpy"] == np.__version__
    assert str(made) not in json.dumps(manifest)


def test_the_same_run_publishes_the_same_bytes(made, folder):
    corpus = Corpus.open(folder / "corpus")
    publish(Run.open(corpus, "main"), open_pool(corpus), folder / "again")
    again = {
        f.relative_to(folder / "again"): f.read_bytes() for f in (folder / "again").rglob("*.*")
    }
    first = {
        f.relative_to(made / "published"): f.read_bytes() for f in (made / "published").rglob("*.*")
    }
    assert again == first


# --- tampering: with checksums left alone, and with checksums made to fit -------------------------


def test_every_file_is_under_the_checksums(folder):
    for file in files(folder):
        name = file.relative_to(folder / "published").as_posix()
        if name == "SHA256SUMS":
            continue
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert difference(folder).startswith(f"{name} does not have the checksum")
        file.unlink()
        assert difference(folder).startswith(f"{name} is missing")
        file.write_bytes(content)
    (folder / "published" / "more.txt").write_text("x")
    assert difference(folder) == "more.txt is not listed in SHA256SUMS"


@pytest.mark.sample(10)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r: r[0].update(fair_score=r[0]["fair_score"] + 2e-9),
            "fair_score of 'nepv', k = 4",
        ),
        (
            lambda r: of(r, "vision-only")["scores"].update(vision=0.0),
            "scores of 'vision-only', k = 4, seed 0, view vision",
        ),
        (
            lambda r: of(r, "auto")["coverage"].update(text=None),
            "coverage of 'auto', k = 4, seed 0, view text",
        ),
        (
            lambda r: of(r, "auto")["coverage"].update(text=float("nan")),
            "results.json cannot be read (NaN",
        ),
        (lambda r: of(r, "text-only")["scores"].pop("text"), "scores of 'text-only'"),
        (lambda r: of(r, "text-only").update(efficiency=1.0), "efficiency of 'text-only'"),
        (lambda r: of(r, "text-only").update(upper_bound=5.0), "upper_bound of 'text-only'"),
        (lambda r: r[0]["rows"].__setitem__(0, r[0]["rows"][1]), "is chosen twice"),
        (lambda r: r[0]["rows"].pop(), "expected 4 whole numbers"),
        (
            lambda r: r[0]["rows"].__setitem__(0, -1),
            "row -1 of 'nepv', k = 4, seed 0 is not in the",
        ),
        (lambda r: r[0]["rows"].__setitem__(0, 10**6), "row 1000000 of 'nepv'"),
        (lambda r: r[0]["rows"].__setitem__(0, 0.5), "expected 4 whole numbers"),
        (lambda r: r[0]["ids"].__setitem__(0, "x"), "id in 'nepv', k = 4, seed 0: published x"),
        (lambda r: r[0]["ids"].pop(), "ids of 'nepv'"),
        (
            lambda r: of(r, "random").update(seed=1),
            "results.json has 'random', k = 4, seed 1 where",
        ),
        (lambda r: _swap_seeds(r), "'random', k = 4, seed 0: the seed draws other items"),
        (lambda r: r[0].update(fair_score=10**400), "is too large a number"),
        (lambda r: r[0].update(rows=[[1], 2, 3, 4]), "expected 4 whole numbers"),
        (lambda r: r[0]["rows"].__setitem__(0, True), "expected 4 whole numbers"),
        (lambda r: r[0]["rows"].__setitem__(0, 10**30), f"row {10**30} of 'nepv'"),
        (lambda r: r[0].update(k=4.0), "results.json has 'nepv', k = 4.0, seed 0 where"),
        (lambda r: r[0].update(status="GREAT"), "no selection ends as 'GREAT'"),
        (lambda r: r[0].update(status="INTERRUPTED"), "no selection ends as 'INTERRUPTED'"),
        (lambda r: r[0].update(status=[1]), "no selection ends as [1]"),
        (lambda r: r[0].update(notes=5), "notes of 'nepv', k = 4, seed 0: expected a list"),
        (lambda r: r.pop(), "results.json has 19 selections, the settings ask for 20"),
        (lambda r: r.append(r[0]), "results.json has 21 selections"),
        (
            lambda r: r[0].update(status="SPENT"),
            "results.csv does not say what results.json says",
        ),
        (lambda r: r[0].pop("rows"), "results.json holds no result"),
    ],
)
def test_a_changed_result_is_found(folder, change, message):
    edit(folder, "results.json", change)
    assert message in difference(folder)


def _swap_seeds(results):
    first = results.index(of(results, "random"))
    own = results[first : first + 2]
    results[first : first + 2] = [{**own[1], "seed": 0}, {**own[0], "seed": 1}]


def test_a_row_of_the_test_set_is_found(folder):
    row = json.loads((folder / "published" / "split.json").read_text())["test"][0]
    edit(folder, "results.json", lambda r: r[0]["rows"].__setitem__(0, row))
    assert difference(folder) == f"row {row} of 'nepv', k = 4, seed 0 is not in the selection pool"


@pytest.mark.sample(18)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["settings"].update(tau=0.06), "tau = 0.05, eps"),
        (lambda m: m["settings"].update(tau="0.05"), "tau must be a finite positive number"),
        (lambda m: m["settings"].update(eps=None), "settings, eps: published None, found 0.1"),
        (lambda m: m["settings"].update(gap=float("nan")), "manifest.json cannot be read (NaN"),
        (lambda m: m["settings"].update(effort="magic"), "effort must be one of"),
        (lambda m: m["settings"].update(calibration="x"), "calibration must be one of"),
        (lambda m: m["settings"].update(seeds=2.0), "seeds must be a whole number"),
        (lambda m: m["settings"].update(seeds=3), "has 20 selections, the settings ask for 22"),
        (lambda m: m["settings"].update(seeds=10**12), "the settings ask for 2000000000016"),
        (lambda m: m["settings"].update(sizes=[4, True]), "k = True does not fit"),
        (lambda m: m["settings"].update(drawn={}), "settings, drawn, random is missing"),
        (lambda m: m["settings"]["methods"].append("magic"), "method must be one of auto"),
        (lambda m: m["settings"].update(version=1), "version in the settings: published 1"),
        (lambda m: m["settings"].update(split_seed=6), "settings, split_seed: published 6"),
        (lambda m: m["settings"].update(split_seed=5.0), "split_seed: published 5.0, found 5"),
        (lambda m: m["settings"].update(split="0"), "settings, split: published 0, found"),
        (lambda m: m["settings"]["features"].update(text="0"), "settings, features, text: publ"),
        (lambda m: m["split"].update(seed=6), "split, seed: published 6, found 5"),
        (lambda m: m["split"].update(checksum="0"), "split, checksum: published 0, found"),
        (lambda m: m["settings"].update(n=47), "settings, n: published 47, found 48"),
        (lambda m: m.update(simulated=False), "simulated: published False, found True"),
        (lambda m: m.update(simulated=1), "simulated: published 1, found True"),
        (lambda m: m["settings"].update(simulated=False), "settings, simulated: published False"),
        (lambda m: m["settings"].update(corpus_name="uspto"), "corpus_name: published uspto"),
        (lambda m: m.update(what="USPTO result"), "what: published USPTO result, found select"),
        (lambda m: m.update(claim="x"), "manifest.json, claim is not expected"),
        (lambda m: m.pop("split"), "manifest.json, split is missing"),
        (lambda m: m["corpus"].update(checksum="0"), "corpus, checksum: published 0"),
        (lambda m: m["corpus"].update(name="uspto"), "corpus, name: published uspto, found simu"),
        (lambda m: m["corpus"].update(kind="folder"), "corpus, kind: published folder"),
        (lambda m: m["corpus"].update(simulated=False), "corpus, simulated: published False"),
        (lambda m: m["corpus"].update(items=5), "corpus, items: published 5, found 60"),
        (lambda m: m["corpus"].update(sources=[]), "corpus, sources: published []"),
        (lambda m: m["corpus"].update(rules={"x": 1}), "corpus, rules, x is not expected"),
        (lambda m: m["corpus"].update(funnel=[]), "corpus, funnel: published []"),
        (lambda m: m["corpus"].update(notes=["x"]), "corpus, notes: published ['x']"),
        (lambda m: m["corpus"].update(made_by=7), "corpus, made_by: published 7"),
        (lambda m: m["features"]["text"].update(version="2"), "text, version: published 2"),
        (lambda m: m["features"].pop("vision"), "features, vision is missing"),
        (lambda m: m["features"].update(minilm={}), "features, minilm is not expected"),
        (lambda m: m["features"]["text"].update(details=5), "text, details: published 5"),
        (lambda m: m.update(format=2), "has another format than 1"),
        (lambda m: m["bounds"][0].update(upper_bound="abc"), "bound for k = 4: 'abc' is no number"),
        (lambda m: m["bounds"][0].update(upper_bound=10**400), "is too large a number"),
        (lambda m: m["bounds"][0].update(k=4.0), "bounds, k: published [4.0, 9], found [4, 9]"),
        (lambda m: m["bounds"][0].update(more=1), "bound for k = 4, more is not expected"),
        (lambda m: m["bounds"].append(m["bounds"][0]), "bounds, k: published [4, 9, 4]"),
        (lambda m: m["bounds"][0].update(upper_bound=0.0), "of 'nepv', k = 4, seed 0"),
        (
            lambda m: m["bounds"][0]["by_view"].update(text=9.0),
            "bounds of views for k = 4, view text",
        ),
        (lambda m: m["bounds"].pop(), "bounds, k: published [4], found [4, 9]"),
        (lambda m: m["bounds"][1].update(proof="bounds/k4.npz"), "expected bounds/k9.npz"),
        (lambda m: m["settings"].pop("tau"), "manifest.json holds no settings of a run"),
        (lambda m: m.pop("bounds"), "is not as publish writes it (KeyError('bounds'))"),
    ],
)
def test_a_changed_manifest_is_found(folder, change, message):
    edit(folder, "manifest.json", change)
    assert message in difference(folder)


def test_a_changed_split_is_found(folder):
    edit(folder, "split.json", lambda s: s.update(seed=6))
    assert "split.json is not what seed 6 and its shares give" in difference(folder)


@pytest.mark.parametrize("name", ["items.csv", "results.csv", "results.tex", "selections.csv"])
def test_a_changed_table_is_found(folder, name):
    path = folder / "published" / name
    path.write_text(path.read_text().replace("0", "1", 1))
    seal(folder)
    assert difference(folder).startswith(f"{name} does not")


def claim_bound(folder: Path, bound: float, *, proof: str | None) -> None:
    """Another bound for k = 9, in the manifest and wherever results name it."""

    def change(results):
        for r in results:
            if r["k"] == 9:
                share = float(np.exp(min(r["fair_score"] - bound, 0)))
                r.update(upper_bound=bound, efficiency=share)

    entry = {"upper_bound": bound, "proof": proof}
    edit(folder, "manifest.json", lambda m: m["bounds"][1].update(entry))
    forge(folder, change)


def rewrite_proof(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """The proof for k = 9: its arrays and what it says of itself."""
    path = folder / "published" / PROOF
    with np.load(path) as archive:
        arrays = dict(archive)
    about = json.loads(str(arrays["about"]))
    change(arrays, about)
    np.savez(path, **{**arrays, "about": np.array(json.dumps(about))})
    seal(folder)


def published_bound(folder: Path) -> float:
    manifest = json.loads((folder / "published" / "manifest.json").read_text())
    return manifest["bounds"][1]["upper_bound"]


PROOF = "bounds/k9.npz"


@pytest.mark.parametrize("change", [{"tau": 0.06}, {"eps": 0.2}, {"calibration": "none"}])
def test_scores_of_another_problem_are_found(folder, change):
    forge(folder, lambda r: None, **change)
    assert "'nepv', k = 4" in difference(folder)


def test_a_bound_that_does_not_follow_is_found(folder):
    """The proof of one size claims less than it proves; all that is said of it claims the same."""
    lower = published_bound(folder) - 1e-4
    rewrite_proof(folder, lambda arrays, about: about.update(upper_bound=lower))
    claim_bound(folder, lower, proof=PROOF)
    assert difference(folder).startswith("bound for k = 9: published")


@pytest.mark.parametrize("proof", [PROOF, None])
def test_a_bound_below_a_score_is_found(folder, proof):
    claim_bound(folder, -5.0, proof=proof)
    said = "bound for k = 9, 'nepv', k = 9, seed 0: the bound -5.0 is no bound"
    assert difference(folder).startswith(said)


def test_a_bound_without_a_proof_is_proven_again(folder):
    (folder / "published" / PROOF).unlink()
    bound = published_bound(folder)
    for honest in (bound, bound + 0.1):
        claim_bound(folder, honest, proof=None)
        shown = UNITS["diverse"].rounded_up(honest)
        said = f"bound for k = 9: {shown} came without its proof; proven again"
        assert said in check(folder)
    lower = bound - 0.01  # below the relaxation, by more than any gap
    claim_bound(folder, lower, proof=None)
    said = f"bound for k = 9, all views: published {lower!r} without a proof"
    assert difference(folder).startswith(said)
    claim_bound(folder, bound, proof=None)
    edit(folder, "manifest.json", lambda m: m["bounds"][1]["by_view"].update(text=-9.0))
    assert difference(folder).startswith("bound for k = 9, text: published -9.0 without a proof")


def test_a_proof_of_a_constrained_problem_is_found(folder):
    """A bound for fewer sets says nothing of all."""
    proof = certify(open_pool(Corpus.open(folder / "corpus")).views, 9, exclude=[0]).proof
    np.savez(folder / "published" / PROOF, **proof_arrays(proof))
    claim_bound(folder, proof.upper_bound, proof=PROOF)
    said = "the certificate is about other terms: exclude is [0], expected none"
    assert difference(folder) == f"{PROOF}: {said}"


@pytest.mark.parametrize(
    "forged",
    [
        {"normalize": True, "offsets": {"text": -0.01, "vision": -0.01}},
        {"normalize": False, "factors": {"text": 1e-9, "vision": 1e-9}},
    ],
)
def test_a_bound_of_another_calibration_under_the_same_name_is_found(folder, forged):
    """Its dual variables do prove it, of a problem that the settings do not name."""
    views = open_pool(Corpus.open(folder / "corpus")).views
    proof = certify(views, 9, calibration=Calibration("unit-diagonal", **forged)).proof
    np.savez(folder / "published" / PROOF, **proof_arrays(proof))
    scores = json.loads((folder / "published/results.json").read_text())
    highest = max(result["fair_score"] for result in scores if result["k"] == 9)
    lower = max(proof.upper_bound, highest)  # or the scores would give it away
    rewrite_proof(folder, lambda arrays, about: about.update(upper_bound=lower))
    edit(folder, "manifest.json", lambda m: m["bounds"][1].update(by_view=dict(proof.by_view)))
    claim_bound(folder, lower, proof=PROOF)
    said = "the certificate is about other terms: calibration is Calibration"
    assert difference(folder).startswith(f"{PROOF}: {said}")


def test_a_selector_that_does_not_exist_is_found(folder):
    def add(results):
        own = {k: [r for r in results if r["k"] == k] for k in (4, 9)}
        results[:] = [r for rs in own.values() for r in (*rs, {**rs[1], "method": "magic"})]

    methods = json.loads((folder / "published/manifest.json").read_text())["settings"]["methods"]
    forge(folder, add, methods=[*methods, "magic"])
    assert "method must be one of auto" in difference(folder)


def test_a_draw_is_no_local_optimum(folder):
    forge(folder, lambda r: of(r, "random").update(status="LOCAL_OPTIMUM"))
    assert difference(folder).startswith("status of 'random', k = 4, seed 0: published LOCAL_OPTI")


def test_an_optimum_that_nobody_proved_is_found(folder):
    forge(folder, lambda r: of(r, "auto").update(status="OPTIMAL"))
    assert difference(folder).startswith(
        "status of 'auto', k = 4, seed 0: published OPTIMAL, but the search for it ends as COMPLETE"
    )


@pytest.mark.slow
def test_an_optimum_is_proven_again(tmp_path):
    corpus = make_corpus(tmp_path / "corpus", 25)
    add_features(corpus)
    write_split(corpus, split(corpus))
    pool = open_pool(corpus)
    settings = make_settings(pool, [3], methods=["auto", "text-only"], seeds=2)
    run = carry_out(Run.start(corpus, "main", settings), pool)
    publish(run, pool, tmp_path / "published")
    assert "optimum for k = 3: proven again" in check(tmp_path)
    worse = run.results[-1].record  # of the text alone
    chosen = {key: worse[key] for key in worse if key not in ("method", "seed", "status", "notes")}
    forge(tmp_path, lambda r: r[1].update(chosen))
    assert difference(tmp_path).startswith("status of 'auto', k = 3, seed 1: published OPTIMAL")
    forge(tmp_path, lambda r: r[1].update(status="LOCAL_OPTIMUM"))
    forge(tmp_path, lambda r: r[2].update(status="OPTIMAL"))
    assert "status of 'text-only', k = 3, seed 0" in difference(tmp_path)


# --- what is no publication of ours at all --------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "results.json", "split.json"])
@pytest.mark.parametrize("content", [b"[" * 100_000, b"", b"\xff\xfe", b"1" * 6_000, b"null"])
def test_documents_that_are_none_are_differences(folder, name, content):
    (folder / "published" / name).write_bytes(content)
    seal(folder)
    difference(folder)


def test_a_name_that_is_there_twice_is_found(folder):
    path = folder / "published" / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"simulated": true', '"simulated": false, "simulated": true', 1))
    seal(folder)
    assert difference(folder) == "manifest.json cannot be read ('simulated' occurs twice)"


def test_other_bytes_of_the_same_split_are_found(folder):
    path = folder / "published" / "split.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=3))
    seal(folder)
    assert difference(folder).startswith("split.json does not have the bytes")


def test_sums_that_are_no_text_are_a_difference(folder, command):
    (folder / "published" / "SHA256SUMS").write_bytes(b"\xff\xfe")
    code, _, err = command(f"uspto verify {folder / 'published'} {folder / 'corpus'}")
    assert code == 1
    assert err.startswith(f"fairnepv: {folder / 'published'} differs: a document is not as")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, about: arrays.update(
            {name: 1e300 * value for name, value in arrays.items() if "combine" in name}
        ),
        lambda arrays, about: arrays.update({"joint/rows": 10**6 * arrays["joint/rows"]}),
        lambda arrays, about: about.update(upper_bound="abc"),
    ],
)
def test_damaged_proofs_are_differences(folder, change):
    rewrite_proof(folder, change)
    difference(folder)


@pytest.mark.parametrize(
    "name", ["results.json", "seconds.csv", "seconds.tex", "views.png", "efficiency.png"]
)
def test_every_file_has_to_be_there_itself(folder, name):
    path = folder / "published" / name
    path.rename(folder / name)
    seal(folder)
    assert difference(folder) == f"{name} is missing"
    path.symlink_to(folder / name)
    seal(folder)
    assert difference(folder).startswith(f"{name} is no file of its own")


@pytest.mark.parametrize("name", ["bounds/k5.npz", "bounds/k04.npz", "README.md", ".hidden"])
def test_files_that_nobody_checks_are_found(folder, name):
    shutil.copyfile(folder / "published/bounds/k4.npz", folder / "published" / name)
    seal(folder)
    assert difference(folder) == f"{name} is not expected: nothing vouches for it"


def test_files_are_read_within_limits(folder, monkeypatch):
    with pytest.raises(Difference, match=r"seconds\.csv cannot be read \(it has more than 5 bytes"):
        published_files.bounded(folder / "published", "seconds.csv", 5)
    monkeypatch.setattr(published_files, "_LARGEST_SUMS", 100)
    assert "SHA256SUMS cannot be read (it has more than 100 bytes)" in difference(folder)


def test_a_name_that_is_listed_twice_is_found(folder):
    path = folder / "published" / "SHA256SUMS"
    path.write_text(f"{'0' * 64}  results.csv\n" + path.read_text())
    assert difference(folder) == "SHA256SUMS lists results.csv twice"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("seconds.csv", lambda text: text + "nepv is the best,4,0,1.0\n"),
        ("seconds.csv", lambda text: text.replace("seconds", "seconds of the winner")),
        ("seconds.csv", lambda text: text.replace("nepv", "auto")),
        ("seconds.csv", lambda text: re.sub(r"[0-9.e-]+\n$", "-1.0\n", text)),
        ("seconds.csv", lambda text: re.sub(r"[0-9.e-]+\n$", "nan\n", text)),
        ("seconds.tex", lambda text: text.replace("FairNEPv, the", "Optimal, proven: the")),
        ("seconds.tex", lambda text: text.replace("Simulated", "Real")),
    ],
)
def test_tables_of_seconds_say_nothing_else(folder, name, change):
    """Anything could be written there, F and bounds of a selector among it."""
    path = folder / "published" / name
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))
    seal(folder)
    difference(folder)


def test_a_caption_rounds_nothing_away(made):
    settings = open_settings(made)
    assert "tau = 0.05, eps = 0.1," in settings.caption
    assert f"tau = {0.05 * (1 + 1e-9)!r}," in replace(settings, tau=0.05 * (1 + 1e-9)).caption


def open_settings(folder: Path) -> Settings:
    document = json.loads((folder / "published" / "manifest.json").read_text())
    return Settings.read(document["settings"], "manifest.json")


def test_links_to_folders_are_found(folder):
    (folder / "published" / "more").symlink_to(folder / "corpus")
    assert difference(folder).startswith("more is no file of its own")


def test_a_proof_of_another_problem_is_found(folder):
    shutil.copyfile(folder / "published/bounds/k9.npz", folder / "published/bounds/k4.npz")
    seal(folder)
    said = "the certificate is about other terms: k is 9, expected 4"
    assert difference(folder) == f"bounds/k4.npz: {said}"


# --- the corpus is not the same -------------------------------------------------------------------


def test_a_changed_feature_is_found(folder, command):
    path = folder / "corpus" / "features" / "vision.npy"
    features = np.load(path)
    features[7, 3] += 0.25
    np.save(path, features)
    code, _, err = command(f"uspto verify {folder / 'published'} {folder / 'corpus'}")
    assert code == 1
    assert "features of view 'vision' do not have the checksum" in err


def test_features_made_anew_are_found(folder):
    corpus = Corpus.open(folder / "corpus")
    write_view(corpus, "vision", np.ones((60, 12), dtype=np.float16))
    assert difference(folder).startswith("manifest.json, features, vision, checksum: published")


def test_features_of_another_corpus_are_found(folder):
    write_view(Corpus.open(folder / "corpus"), "vision", np.ones((60, 2)), corpus="0" * 64)
    assert "describes features of another corpus" in difference(folder)


def test_another_corpus_is_found(folder, command):
    other = make_corpus(folder / "other", 60, seed=1)
    code, _, err = command(f"uspto verify {folder / 'published'} {other.folder}")
    assert code == 1
    assert err.startswith("fairnepv: ")
    assert "corpus, checksum: published" in err
    assert err.count("\n") == 1


def test_a_changed_image_is_found(folder):
    """Features are of images; whoever exchanges one leaves the table of items as it was."""
    file = folder / "corpus/images.parquet"
    table = pq.read_table(file)
    images = table.column("image").to_pylist()
    images[3] = images[4]
    pq.write_table(pa.table({"id": table.column("id"), "image": images}), file)
    assert "does not have the checksum in items.parquet" in difference(folder)


def test_changed_items_are_found(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "corpus" / "items.parquet"
    table = pq.read_table(path)
    texts = table.column("text").to_pylist()
    texts[3] += " more"
    pq.write_table(table.set_column(1, "text", pa.array(texts)), path)
    assert "has changed since it was made" in difference(folder)


# --- refusals of publish --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--run other --out new", "has no run 'other' (there are: main)"),
        ("--out published", "exists already; add --force to replace it"),
        ("--out corpus", "exists already; name another one"),
        ("--out no/where", "does not exist; make it first"),
        ("--out itself --force", "exists already; name another one"),
    ],
)
def test_publish_refuses(folder, command, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    Path("itself").symlink_to("itself")
    code, out, err = command(f"uspto publish corpus {arguments}")
    assert (code, out) == (2, "")
    assert message in err
    assert sorted(p.name for p in folder.iterdir()) == ["corpus", "itself", "published"]


def test_publish_refuses_what_is_incomplete_or_changed(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "corpus/runs/main/done/k9-random-seed1.json").unlink()
    assert "'random', k = 9, seed 1 is missing" in command("uspto publish corpus --out new")[2]
    corpus = Corpus.open("corpus")
    write_split(corpus, split(corpus, seed=6), force=True)
    assert "the split changed since the run" in command("uspto publish corpus --out new")[2]
    write_view(corpus, "vision", np.eye(60))
    write_split(corpus, split(corpus, seed=5), force=True)
    assert "the features changed since the run" in command("uspto publish corpus --out new")[2]
    assert not (folder / "new").exists()


def test_publish_replaces_under_force(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "published" / "old.txt").write_text("old")
    code, out, _ = command("uspto publish corpus --out published --force")
    assert code == 0
    assert "Published 20 selections (simulated uspto)" in out
    check(folder)


KILLED = """
import os, pathlib, shutil, sys
moment, calls = sys.argv[1], [int(sys.argv[2])]
def dying(action):
    def acted(path, *arguments, **options):
        calls[0] -= "published" in str(path)
        if calls[0] == 0:
            os.kill(os.getpid(), 9)
        return action(path, *arguments, **options)
    return acted
owner = {"rmtree": shutil, "replace": pathlib.Path, "write_text": pathlib.Path}[moment]
if moment == "rmtree":  # in the middle of it
    real = shutil.rmtree
    def rmtree(path, *arguments, **options):
        os.unlink(os.path.join(path, "manifest.json"))
        real(path, *arguments, **options)
    shutil.rmtree = dying(rmtree) if calls[0] > 1 else rmtree
    if calls[0] == 1:
        unlink = os.unlink
        os.unlink = lambda path, **options: (unlink(path), os.kill(os.getpid(), 9))
else:
    setattr(owner, moment, dying(getattr(owner, moment)))
sys.argv[1:] = ["uspto", "publish", "corpus", "--out", "published", "--force"]
from fairnepv.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.parametrize(
    ("moment", "call"), [("write_text", 3), ("replace", 1), ("replace", 2), ("rmtree", 1)]
)
def test_a_kill_leaves_the_old_or_the_new_and_the_same_command_goes_on(folder, moment, call):
    """While it is filled, before and between the two moves, and while the old one is removed."""
    line = [sys.executable, "-c", KILLED, moment, str(call)]
    assert subprocess.run(line, cwd=folder, check=False).returncode == -9
    arguments = ["uspto", "publish", "corpus", "--out", "published", "--force"]
    line = [sys.executable, "-m", "fairnepv", *arguments]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)
    assert sorted(p.name for p in folder.iterdir()) == ["corpus", "published"]
    check(folder)


def test_a_publication_that_was_moved_aside_is_put_back(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "published").rename(folder / ".published.old")
    code, _, err = command("uspto publish corpus --out published")
    assert (code, "exists already; add --force to replace it" in err) == (2, True)
    check(folder)


@pytest.mark.parametrize("moment", ["filling", "moving"])
def test_what_fails_leaves_what_was_there(folder, monkeypatch, moment):
    replaced = Path.replace

    def full(*arguments):
        raise OSError(28, "No space left on device")

    def half(self, target):
        return full() if self.name == ".published.new" else replaced(self, target)

    if moment == "filling":
        monkeypatch.setattr(publication, "sums", full)
    else:
        monkeypatch.setattr(Path, "replace", half)
    corpus = Corpus.open(folder / "corpus")
    with pytest.raises(OSError, match="No space left"):
        publish(Run.open(corpus, "main"), open_pool(corpus), folder / "published", force=True)
    assert sorted(p.name for p in folder.iterdir()) == ["corpus", "published"]
    check(folder)


@pytest.mark.parametrize(
    ("lost", "what"),
    [
        ("seconds/k9-random-seed1.json", "the time of 'random', k = 9, seed 1"),
        ("seconds/k4-bound.json", "the time of '(bound)', k = 4, seed 0"),
        ("environment.json", "what it ran on"),
        ("bounds/k9.npz", "the bound for k = 9"),
    ],
)
def test_publish_names_what_a_run_has_lost(folder, command, monkeypatch, lost, what):
    monkeypatch.chdir(folder)
    (folder / "corpus" / "runs" / "main" / lost).unlink()
    code, _, err = command("uspto publish corpus --out new")
    assert code == 2
    assert f"is not complete: {what} is missing ({lost}); start it again" in err


def test_sources_are_published_by_name_and_other_items_without_serial_number(tmp_path):
    corpus = make_corpus(tmp_path / "corpus", 30, simulated=False, kind="folder")
    sources = [{"name": "/home/somebody/texts.csv", "bytes": 1, "sha256": "0"}]
    about = replace(corpus.about, sources=sources)
    assert corpus_record(about)["sources"] == [{**sources[0], "name": "texts.csv"}]
    rows = list(csv.DictReader(items_csv(corpus, split(corpus)).decode().splitlines()))
    assert [row["id"] for row in rows] == corpus.ids
    assert {row["serial_number"] for row in rows} == {""}


def test_large_proofs_are_left_out_and_said_so(folder, monkeypatch):
    monkeypatch.setattr(publication, "_LARGEST_PROOF", 10)
    corpus = Corpus.open(folder / "corpus")
    publish(Run.open(corpus, "main"), open_pool(corpus), folder / "published", force=True)
    manifest = json.loads((folder / "published" / "manifest.json").read_text())
    assert [entry["proof"] for entry in manifest["bounds"]] == [None, None]
    assert sum("came without its proof; proven again" in said for said in check(folder)) == 2


def test_verify_refuses_what_is_no_publication(folder, command):
    code, _, err = command(f"uspto verify {folder / 'corpus'} {folder / 'corpus'}")
    assert code == 2
    assert "is no publication: it has no SHA256SUMS" in err

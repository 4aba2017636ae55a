"""Publish and verify: the round trip, and every tampering found and named."""

import csv
import hashlib
import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import add_features, make_corpus, write_view
from fairnepv.cli import main
from fairnepv.studies import publication
from fairnepv.studies.corpus import Corpus
from fairnepv.studies.publication import publish, sums
from fairnepv.studies.runs import Run, carry_out, make_settings, open_pool
from fairnepv.studies.split import split, write_split
from fairnepv.studies.verification import Difference, verify


@pytest.fixture
def command(monkeypatch, capsys):
    def run(line: str):
        monkeypatch.setattr(sys, "argv", ["fairnepv", *shlex.split(line)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


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


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "made")


def check(folder: Path) -> list[str]:
    return list(verify(folder / "published", Corpus.open(folder / "corpus")))


def difference(folder: Path) -> str:
    with pytest.raises(Difference) as found:
        check(folder)
    return str(found.value)


def seal(folder: Path) -> None:
    """Checksums that fit again, as whoever tampers would write them."""
    (folder / "published" / "SHA256SUMS").write_text(sums(folder / "published"))


def edit(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    path = folder / "published" / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    seal(folder)


def test_the_round_trip_says_what_was_checked(made, command):
    code, out, err = command(f"uspto verify {made / 'published'} {made / 'corpus'}")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "ok  checksums: 14 files".replace("14", str(len(files(made)) - 1))
    for words in (
        "corpus: simulated uspto, 60 items",
        "split: seed 5 gives it; 48 items",
        "features of text: by hand 1",
        "results: 18 selections scored again, none off by more than 1e-09",
        "tables: results.csv, results.tex, selections.csv",
        "bound for k = 4:",
        "bound for k = 9:",
    ):
        assert words in out


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r: r[0].update(fair_score=r[0]["fair_score"] + 2e-9),
            "fair_score of 'nepv', k = 4",
        ),
        (
            lambda r: r[3]["scores"].update(vision=0.0),
            "scores of 'vision-only', k = 4, seed 0, view vision",
        ),
        (
            lambda r: r[1]["coverage"].update(text=None),
            "coverage of 'auto', k = 4, seed 0, view text",
        ),
        (lambda r: r[1]["coverage"].update(text=float("nan")), "coverage of 'auto'"),
        (lambda r: r[2]["scores"].pop("text"), "scores of 'text-only'"),
        (lambda r: r[2].update(efficiency=1.0), "efficiency of 'text-only'"),
        (lambda r: r[2].update(upper_bound=5.0), "upper_bound of 'text-only'"),
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
        (lambda r: r[7].update(seed=1), "results.json has 'random', k = 4, seed 1 where"),
        (lambda r: _swap_seeds(r), "'random', k = 4, seed 0: the seed draws other items"),
        (lambda r: r.pop(), "results.json has 17 selections, the settings ask for 18"),
        (lambda r: r.append(r[0]), "results.json has 19 selections"),
        (
            lambda r: r[0].update(status="OPTIMAL"),
            "results.csv does not say what results.json says",
        ),
        (lambda r: r[0].pop("rows"), "results.json holds no result"),
    ],
)
def test_a_changed_result_is_found(folder, change, message):
    edit(folder, "results.json", change)
    assert message in difference(folder)


def _swap_seeds(results):
    own = [r for r in results if (r["method"], r["k"]) == ("random", 4)]
    results[7:9] = [{**own[1], "seed": 0}, {**own[0], "seed": 1}]


def test_a_row_of_the_test_set_is_found(folder):
    row = json.loads((folder / "published" / "split.json").read_text())["test"][0]
    edit(folder, "results.json", lambda r: r[0]["rows"].__setitem__(0, row))
    assert difference(folder) == f"row {row} of 'nepv', k = 4, seed 0 is not in the selection pool"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["settings"].update(tau=0.06), "of 'nepv', k = 4"),
        (lambda m: m["settings"].update(eps=0.2), "of 'nepv', k = 4"),
        (
            lambda m: m["settings"].update(seeds=3),
            "where the settings ask for 'random', k = 4, seed 2",
        ),
        (lambda m: m["settings"].update(split_seed=6), "split seed in the settings: published 6"),
        (lambda m: m["split"].update(seed=6), "split seed in the manifest: published 6, found 5"),
        (lambda m: m["settings"].update(n=47), "selection pool: published 47, found 48"),
        (lambda m: m.update(simulated=False), "whether it is simulated: published False"),
        (lambda m: m["settings"].update(simulated=False), "whether its settings are simulated"),
        (
            lambda m: m["settings"].update(corpus_name="uspto"),
            "name of the corpus: published uspto",
        ),
        (lambda m: m["corpus"].update(checksum="0"), "corpus checksum: published 0"),
        (
            lambda m: m["features"]["text"].update(version="2"),
            "features of text, version: published 2",
        ),
        (lambda m: m["features"].pop("vision"), "features of vision, view: published None"),
        (lambda m: m["bounds"][0].update(upper_bound=0.0), "of 'nepv', k = 4, seed 0"),
        (
            lambda m: m["bounds"][0]["by_view"].update(text=9.0),
            "bounds of views for k = 4, view text",
        ),
        (lambda m: m["bounds"].pop(), "bounds: published for k = [4]"),
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


def test_a_bound_that_does_not_follow_is_found(folder):
    """The proof of one size claims less than it proves; all that is said of it claims the same."""
    path = folder / "published" / "bounds" / "k4.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    about = json.loads(str(arrays["about"]))
    lower = about["upper_bound"] - 0.01
    about["upper_bound"] = lower
    np.savez(path, **{**arrays, "about": np.array(json.dumps(about))})

    def claim(results):
        for r in results:
            if r["k"] == 4:
                r.update(
                    upper_bound=lower, efficiency=float(np.exp(min(r["fair_score"] - lower, 0)))
                )

    edit(folder, "results.json", claim)
    edit(folder, "manifest.json", lambda m: m["bounds"][0].update(upper_bound=lower))
    assert difference(folder).startswith("results.csv does not")
    from fairnepv.studies.results import Result
    from fairnepv.studies.run_report import tables
    from fairnepv.studies.runs import Settings

    documents = json.loads((folder / "published" / "results.json").read_text())
    settings = json.loads((folder / "published" / "manifest.json").read_text())["settings"]
    written = tables([Result.read(d, "") for d in documents], Settings.read(settings, ""))
    for name, content in written.items():
        (folder / "published" / name).write_bytes(content)
    seal(folder)
    assert difference(folder).startswith("bound for k = 4: published")


def test_a_proof_of_another_problem_is_found(folder):
    shutil.copyfile(folder / "published/bounds/k9.npz", folder / "published/bounds/k4.npz")
    seal(folder)
    assert difference(folder) == "k in bounds/k4.npz: published 9, expected 4"


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
    assert difference(folder).startswith("features of vision, checksum: published")


def test_features_of_another_corpus_are_found(folder):
    write_view(Corpus.open(folder / "corpus"), "vision", np.ones((60, 2)), corpus="0" * 64)
    assert "describes features of another corpus" in difference(folder)


def test_another_corpus_is_found(folder, command):
    other = make_corpus(folder / "other", 60, seed=1)
    code, _, err = command(f"uspto verify {folder / 'published'} {other.folder}")
    assert code == 1
    assert err.startswith("fairnepv: ")
    assert "corpus checksum: published" in err
    assert err.count("\n") == 1


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
    ],
)
def test_publish_refuses(folder, command, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    code, out, err = command(f"uspto publish corpus {arguments}")
    assert (code, out) == (2, "")
    assert message in err
    assert sorted(p.name for p in folder.iterdir()) == ["corpus", "published"]


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
    assert "Published 18 selections (simulated uspto)" in out
    check(folder)


def test_large_proofs_are_left_out_and_said_so(folder, monkeypatch):
    monkeypatch.setattr(publication, "_LARGEST_PROOF", 10)
    corpus = Corpus.open(folder / "corpus")
    publish(Run.open(corpus, "main"), open_pool(corpus), folder / "published", force=True)
    said = check(folder)
    assert "bound for k = 4: its proof was too large to publish; not checked" in said


def test_verify_refuses_what_is_no_publication(folder, command):
    code, _, err = command(f"uspto verify {folder / 'corpus'} {folder / 'corpus'}")
    assert code == 2
    assert "is no publication: it has no SHA256SUMS" in err

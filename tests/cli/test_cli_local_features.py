"""`local-features` on the command line: files to choose by, and what it refuses."""

import re

import numpy as np
import pytest

import fairnepv
from cases import ROOT
from fairnepv.insight import LOCAL_EPS

N = 30
VIEWS = "--view text=text.npy --view vision=vision.npy"


@pytest.fixture
def pool(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    views = {"text": rng.standard_normal((N, 4)), "vision": rng.standard_normal((N, 5)) + 2.0}
    for name, rows in views.items():
        np.save(f"{name}.npy", rows)
    return views


def test_files_hold_what_the_library_gives(command, pool):
    shown = command(f"local-features {VIEWS} --out near.npy").out
    for name, expected in fairnepv.local_features(pool).items():
        np.testing.assert_array_equal(np.load(f"near-{name}.npy"), expected)
        assert f"--view {name}=near-{name}.npy" in shown
    line = next(line.split("fairnepv ")[1] for line in shown.splitlines() if "select" in line)
    picks = command(line.replace("-k K", "-k 4 --effort fast --no-certify --json")).document
    found = fairnepv.select(
        fairnepv.local_features(pool), 4, objective="representative", eps=LOCAL_EPS, effort="fast"
    )
    assert [pick["row"] for pick in picks["picks"]] == found.indices.tolist()


def test_views_are_aligned_before_they_keep_company(command, pool):
    order = np.random.default_rng(4).permutation(N)
    np.save("vision.npy", pool["vision"][order])
    for name, ids in (("text", np.arange(N)), ("vision", order)):
        np.savetxt(f"{name}.txt", [f"item{i}" for i in ids], fmt="%s")
    shown = command(
        f"local-features {VIEWS} --ids text=text.txt --ids vision=vision.txt --out near.npy"
    ).out
    assert "--ids text.txt" in shown
    for name, expected in fairnepv.local_features(pool).items():
        np.testing.assert_allclose(np.load(f"near-{name}.npy"), expected, atol=1e-5)


def test_ids_of_converted_folders_are_those_of_the_picks(command, pool):
    """Of the first view, which the rows follow."""
    names = np.array([f"item{i}" for i in range(N)])
    order = np.random.default_rng(4).permutation(N)
    np.save("vision.npy", pool["vision"][order])
    for name, ids in (("text", names), ("vision", names[order])):
        np.save(f"{name}-ids.npy", ids)
        command(f"convert {name}.npy --ids {name}-ids.npy --out {name}-rows")
    shown = command(
        "local-features --view text=text-rows --view vision=vision-rows --out near.npy"
    ).out
    line = next(line.split("fairnepv ")[1] for line in shown.splitlines() if "select" in line)
    assert "--ids text-rows " in line
    picks = command(line.replace("-k K", "-k 4 --effort fast --no-certify --json")).document
    assert all(pick["id"] == names[pick["row"]] for pick in picks["picks"])


def test_the_ridge_stands_once():
    """In the code; the pages that name it have the same."""
    said = f"eps={LOCAL_EPS}"
    assert said in fairnepv.local_features.__doc__
    for page in ("README.md", "docs/choosing.md", "docs/insight.md", "docs/python.md"):
        calls = re.findall(
            r"select\(fairnepv\.local_features\(data\).*?\)`", (ROOT / page).read_text()
        )
        assert calls
        assert all(said in call for call in calls)


def test_json_names_files_and_shapes(command, pool):
    document = command(f"local-features {VIEWS} --out near.npy --json").document
    assert document["views"] == {name: f"near-{name}.npy" for name in pool}
    assert all(shape[0] == N for shape in document["shapes"].values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "--out near.npy"),
        ("--out near.parquet", ".npy"),
        ("--out missing/near.npy", "does not exist"),
    ],
)
def test_refusals(command, pool, arguments, words):
    done = command(f"local-features {VIEWS} {arguments}")
    assert done.code == 2
    assert words in done.err


def test_files_that_exist_stay(command, pool):
    assert command(f"local-features {VIEWS} --out near.npy").code == 0
    done = command(f"local-features {VIEWS} --out near.npy")
    assert done.code == 2
    assert "--force" in done.err
    assert command(f"local-features {VIEWS} --out near.npy --force").code == 0

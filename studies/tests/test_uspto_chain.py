"""The whole protocol as one: simulate, ingest, split, features, run, publish, verify.

It is `examples/uspto.sh` itself that runs, so that what is documented is what is tested.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pytest

from fairnepv_studies.corpus import Corpus

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "uspto.sh"
STEPS = ("simulate", "ingest", "split", "features", "run", "publish", "verify")


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """The folder that the script has filled, and what it said."""
    for needed in ("lxml", "torch", "efficientnet_lite_pytorch"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("chain") / "simulated"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        [str(SCRIPT), "2000", str(folder), "20,50", "fast"],
        env={**os.environ, "PATH": path, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return folder, ended.stdout


@pytest.mark.encoders
@pytest.mark.slow
def test_the_chain_ends_in_a_publication_that_holds(chain):
    folder, out = chain
    assert out.splitlines()[-1] == f"{folder / 'published'} is what {folder / 'corpus'} gives."
    corpus = Corpus.open(folder / "corpus")
    corpus.check()
    assert 1_500 < corpus.n <= 2_000
    rows = pyarrow.csv.read_csv(folder / "published" / "results.csv").to_pylist()
    assert {row["k"] for row in rows} == {20, 50}
    assert {row["method"] for row in rows} == {
        *("nepv", "greedy-swaps", "auto", "text-only", "vision-only"),
        *("averaged", "fixed-weight", "concatenated", "random"),
    }
    assert all(0.0 <= row["efficiency"] <= 1.0 for row in rows)
    for k in (20, 50):
        scores = {name: [] for name in ("random", "auto")}
        for row in rows:
            if row["k"] == k and row["method"] in scores:
                scores[row["method"]].append(row["fair_score"])
        assert max(scores["random"]) < min(scores["auto"])


@pytest.mark.slow
def test_simulated_data_is_called_so_everywhere(chain):
    folder, out = chain
    manifest = json.loads((folder / "published" / "manifest.json").read_text())
    assert manifest["simulated"] is manifest["corpus"]["simulated"] is True
    assert "Simulated" in manifest["what"]
    assert "items, simulated uspto, objective diverse" in " ".join(out.split())
    for name in ("results.tex", "seconds.tex"):
        assert r"\caption{Simulated" in (folder / "published" / name).read_text()
    table = pyarrow.csv.read_csv(folder / "published" / "results.csv")
    assert set(table.column("corpus").to_pylist()) == {"simulated uspto"}


@pytest.mark.slow
def test_the_sums_are_right(chain):
    published = chain[0] / "published"
    for line in (published / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((published / name).read_bytes()).hexdigest() == digest


def test_the_script_takes_every_step_in_order():
    text = SCRIPT.read_text()
    at = [text.index(f"\nfairnepv uspto {step} ") for step in STEPS]
    assert at == sorted(at)
    assert "set -euo pipefail" in text

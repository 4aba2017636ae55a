"""What has to work where only the wheels are installed: run by `make dist` with the Python of an
empty environment, in an empty folder. It imports nothing of this repository's tests."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

import fairnepv

COMMAND = Path(sys.executable).with_name("fairnepv")


def run(*words: str) -> str:
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"fairnepv {' '.join(words)} ended so:\n{done.stdout}{done.stderr}"
    return done.stdout


def main() -> None:
    assert "site-packages" in fairnepv.__file__, f"{fairnepv.__file__} is not what was installed"
    rng = np.random.default_rng(0)
    views = {"text": rng.normal(size=(300, 16)), "vision": rng.normal(size=(300, 24))}
    for objective in ("diverse", "representative"):
        chosen = fairnepv.select(views, 12, objective=objective)
        assert len(set(chosen.indices.tolist())) == 12
        assert chosen.fair_score <= chosen.upper_bound
        assert fairnepv.verify_bound(views, chosen.certificate).holds
    sources = []
    for name, rows in views.items():
        np.save(f"{name}.npy", rows)
        sources += ["--view", f"{name}={name}.npy"]
    run("select", *sources, "-k", "12", "--out", "picks.parquet", "--bound", "bound.npz")
    assert "holds" in run("verify-bound", "bound.npz", *sources)
    run("select", *sources, "-k", "12", "--report", "report.html")
    assert "Content-Security-Policy" in Path("report.html").read_text()
    run("score", *sources, "--picks", "picks.parquet")
    if importlib.util.find_spec("fairnepv_studies"):
        run("synthetic", "--help")
        run("uspto", "--help")
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}: works")


if __name__ == "__main__":
    main()

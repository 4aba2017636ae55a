"""Prints a requirement `name==version` for every lower bound of both distributions, with which
`make dist` tries whether the oldest versions that are promised really work."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    for project in (ROOT, ROOT / "studies"):
        declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        for requirement in declared["dependencies"]:
            if bound := re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement):
                print("==".join(bound.groups()))


if __name__ == "__main__":
    main()

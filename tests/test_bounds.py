"""Lower bounds are above the known holes of what we depend on, whatever it is used for here.

The table was made by hand from the advisories that were known on 2026-11-19; `make audit` asks for
those of today. A hole that is found later is a line here, and then a bound in pyproject.toml.
"""

import itertools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOLES = {  # the first version without
    # Arrow files: memory that was freed (CVE-2026-25087); before 14.0.1 code (CVE-2023-47248).
    "pyarrow": "23.0.1",
    # A JPEG writes beyond its memory (CVE-2026-112403; what could be read of it has no version, but
    # 13 came out that week); before 12.3 CVE-2026-59199, 12.2 CVE-2026-40192, 11.3 CVE-2025-48379.
    "pillow": "13",
    # XML reads local files (CVE-2026-41066).
    "lxml": "6.1",
    # Commands by click.edit, which we do not use (CVE-2026-7246, disputed).
    "click": "8.3.3",
    # Texts stay in a vectorizer (CVE-2024-5206).
    "scikit-learn": "1.5",
    # torch.jit, which we do not use (CVE-2025-3000); torch.load, by which we read the weights of a
    # pinned package alone (before 2.10 CVE-2026-24747, before 2.6 CVE-2025-32434).
    "torch": "2.13",
    # Code by files of Ray Data, which we do not use (CVE-2026-57516, before 2.55 CVE-2026-41486);
    # before 2.52 code from a web page (CVE-2025-62593). CVE-2023-48022 is how a cluster works:
    # whoever reaches it may run code there (SECURITY.md).
    "ray": "2.56",
    # A model's files write elsewhere (CVE-2026-9856); before 5.3 code by its config.json
    # (CVE-2026-4372).
    "transformers": "5.10",
    # Code by pickled tables (CVE-2026-57845).
    "datasets": "5.2",
}


def bounds(project):
    """(name, lower bound) of every requirement, those of extras among them."""
    declared = tomllib.loads((ROOT / project / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"].values()
    wanted = [*declared["dependencies"], *itertools.chain(*extras)]
    for requirement in wanted:
        found = re.match(r"([\w-]+)(?:\[\w+\])?(?:[>=]=([\d.]+))?", requirement)
        yield found[1], found[2]


def numbers(version):
    parts = [int(part) for part in version.split(".")]
    return [*parts, 0, 0, 0][:4]


@pytest.mark.parametrize("project", [".", "studies"])
def test_no_lower_bound_is_below_a_known_hole(project):
    declared = list(bounds(project))
    assert {"pyarrow", "pillow", "torch", "click"} <= {name for name, _ in declared}
    for name, bound in declared:
        if name in HOLES:
            assert bound is not None, f"{name} needs >={HOLES[name]}"
            assert numbers(bound) >= numbers(HOLES[name]), name


def test_every_hole_is_of_something_that_we_depend_on():
    declared = {name for project in (".", "studies") for name, _ in bounds(project)}
    assert set(HOLES) <= declared


@pytest.mark.parametrize(
    ("one", "other"), [("2.9.1", "2.10"), ("13", "13.0.1"), ("5.9.9.9", "5.10")]
)
def test_versions_are_numbers(one, other):
    assert numbers(one) < numbers(other)
    assert numbers("13") == numbers("13.0.0")

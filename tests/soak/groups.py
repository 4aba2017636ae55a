"""The groups by name, each with its module, in the order in which the full run has them."""

import importlib

from soak.runner import Group

GROUPS = {
    "contract": "contract",
    "cross-product": "cross_product",
    "local-optima": "local_optima",
    "numerics": "numerics",
    "determinism": "determinism",
    "hostile-files": "hostile_files",
    "fuzz": "fuzz",
    "limits": "limits",
    "bad-input": "bad_input",
    "page": "page",
    "killed": "killed",
    "storage": "storage",
    "workers": "workers",
    "load": "load",
}


def group_of(name: str) -> Group:
    """Loaded when it is asked for: some need what others do without."""
    group: Group = importlib.import_module(f"soak.{GROUPS[name]}").GROUP
    return group

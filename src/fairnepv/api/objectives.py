"""What an objective asks of options and data; what it does not support is one refusal."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairnepv.errors import InputError
from fairnepv.objective import UTILITIES, unsupported
from fairnepv.options import DIVERSE, as_objective_wants
from fairnepv.views import Calibration, Pool
from fairnepv.views.base import Floats


def as_wanted(options: Mapping[str, Any]) -> Any:
    """The same options with the defaults of their objective, and with the calibration that settings
    tell, once what does not go together is refused; before any data is looked at."""
    given = as_objective_wants(options)
    given["calibration"] = Calibration.read(given["calibration"])
    if given["objective"] != DIVERSE:
        _refuse_factors(given["calibration"])
    return given


def _refuse_factors(rule: Any) -> None:
    factors = isinstance(rule, Mapping) or (isinstance(rule, Calibration) and bool(rule.offsets))
    if factors or (isinstance(rule, str) and rule == "efficiency"):
        what = "factors on L as a calibration" if factors else "calibration 'efficiency'"
        raise unsupported(
            what, "shares are on one scale already: use 'unit-diagonal', 'trace' or 'none'"
        )


def pool_as_asked(pool: Pool, rule: Calibration, objective: str) -> Pool:
    """The calibrated pool; for shares, with the second moments of every view."""
    if objective != DIVERSE:
        for name, view in pool.items():
            if view.ridge == 0:
                raise InputError(
                    f"view {name!r} brings eps = 0, but objective {objective!r} explains rows by "
                    "ridge regression, which needs a positive ridge; give the view another one"
                )
            if not view.raw_squared_norms().any():
                raise _no_variance(name)
    asked = UTILITIES[objective].asked_about(pool, rule)
    for name, view in asked.items():
        if view.moments is not None and not view.moments.trace > 0:
            raise _no_variance(name)
    return asked


def _no_variance(name: str) -> InputError:
    return InputError(
        f"view {name!r} has no variance over the pool, so that there is nothing of it to explain; "
        "drop the view"
    )


def check_floors(floors: Floats | None, names: tuple[str, ...], objective: str) -> None:
    """Floors under shares are shares."""
    if floors is None or objective == DIVERSE:
        return
    for name, least in zip(names, floors.tolist(), strict=True):
        if np.isfinite(least) and not 0 <= least <= 1:
            raise InputError(
                f"floors of view {name!r} must be a share of variance from 0 to 1 for objective "
                f"{objective!r}, not {least:g}"
            )

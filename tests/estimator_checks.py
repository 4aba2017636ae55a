"""scikit-learn's checks of estimators on `FairSelector`; those that do not apply have reasons."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.utils.estimator_checks import estimator_checks_generator

from fairnepv import FairSelector

OWN_WORDS = "it is refused in our words, which name the view, and not in those of scikit-learn"
ZEROS = "its data has rows of zeros, which have no direction to bring to unit length"
APART: dict[str, str] = {
    "check_complex_data": OWN_WORDS,
    "check_estimators_empty_data_messages": OWN_WORDS,
    "check_fit2d_1sample": OWN_WORDS,
    "check_dtype_object": "objects may be anything and are refused, also where they are numbers",
    "check_array_api_input": "it is about arrays of other libraries, by a setting of the process",
}
OF_UNIT_ROWS: dict[str, str] = {
    "check_estimators_dtypes": ZEROS,
    "check_estimator_sparse_tag": ZEROS,
    "check_estimator_sparse_array": ZEROS,
    "check_estimator_sparse_matrix": ZEROS,
}


class Check(NamedTuple):
    """A check on an estimator; `apart` says why it does not hold, where it does not."""

    name: str
    estimator: Any
    call: Callable[[Any], None]
    apart: str | None

    def carry_out(self) -> None:
        """It passes; or, where it is said not to, it does not, and is no longer on the list."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # k above the rank of a narrow view, and the like
            try:
                self.call(self.estimator)
            except Exception:
                if self.apart is None:
                    raise
                return
        assert self.apart is None, f"{self.name} passes; take it off the list"


def _checks_of(estimator: Any, apart: dict[str, str]) -> list[Check]:
    found: list[Check] = []
    for own, call in estimator_checks_generator(estimator):
        name = getattr(call, "func", call).__name__
        again = sum(check.name.partition(" ")[0] == name for check in found)
        found.append(Check(f"{name} {again}" if again else name, own, call, apart.get(name)))
    return found


def checks() -> list[Check]:
    """All that scikit-learn has for an estimator of this kind, with rows as they are and with rows
    of unit length, which are the default."""
    plain = _checks_of(FairSelector(calibration="none"), APART)
    return plain + _checks_of(FairSelector(), {**APART, **OF_UNIT_ROWS})

"""What the library says of what it refuses, for tests to look at."""

import numpy as np
import pytest

from fairnepv import InputError


def refused(action, *arguments, **options) -> str:
    """The one line of the `InputError` that a call raises."""
    with pytest.raises(InputError) as caught:
        action(*arguments, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def refused_rows(read, *arguments) -> str:
    """The same of rows that are refused when they are opened or when they are read."""
    return refused(lambda: np.asarray(read(*arguments)))

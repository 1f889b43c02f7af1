"""Sorting that does not depend on how a processor rounds.

Configurations that trials tell nothing apart by have the same acquisition value but for its last
bits, which differ from one processor's linear algebra to another's. Here the first of them wins.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BITS = 17
"""About five decimal digits."""
_argsort, _argmax = np.argsort, np.argmax


def install() -> None:
    """Put these in the place of numpy's own; call it before autotune is imported."""
    np.argsort, np.argmax = argsort, argmax


def argsort(values: Any, *how: Any, **named: Any) -> NDArray[np.intp]:
    """Return the order of values; of floats (n,) that of the rounded ones, equal ones as they come.

    Anything else is sorted as numpy does.
    """
    if _is_row_of_floats(values):
        return _argsort(_rounded(values), kind="stable")
    return _argsort(values, *how, **named)


def argmax(values: Any, *how: Any, **named: Any) -> NDArray[np.intp] | np.intp:
    """Return the place of the largest; of floats (n,) the first of the largest rounded ones."""
    if _is_row_of_floats(values):
        return _argmax(_rounded(values))
    return _argmax(values, *how, **named)


def _is_row_of_floats(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == np.float64


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(mantissa, _BITS)), exponent - _BITS)

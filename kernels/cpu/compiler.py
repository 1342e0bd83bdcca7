"""How the native kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

keeps_code = False
"""Set by `kernels.cpu.load`."""


def compiled(function: Callable[..., Any] | None = None, *, fastmath: set[str] | bool = False) -> Any:
    """Compile on the first call, to run without the interpreter lock.

    Machine code is kept on disk only in a folder made for these very sources (`kernels.cpu.load`): Numba looks whether
    a function's own file has changed, not at what that function calls.
    """
    decorate = numba.njit(nogil=True, cache=keeps_code, fastmath=fastmath)
    return decorate if function is None else decorate(function)

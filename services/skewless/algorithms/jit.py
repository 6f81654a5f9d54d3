"""Compiles loops in which each decision depends on the previous one, so that numpy cannot vectorise them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class JitFunction(Generic[P, R]):
    """A function that is compiled at its first call. Numba is imported only then, because most stages never need it."""

    def __init__(self, function: Callable[P, R]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function."""
        return self._code(*args, **kwargs)

    @cached_property
    def _code(self) -> Callable[P, R]:
        import numba

        compile_: Callable[..., Any] = numba.njit
        try:
            code: Callable[P, R] = compile_(cache=True)(self._function)
        except RuntimeError:  # no folder for the cache is writable
            code = compile_()(self._function)
        return code

    @property
    def _numba_type_(self) -> Any:
        """Numba type of the compiled function. Numba reads it when another compiled function calls this one."""
        return self._code._numba_type_  # type: ignore[attr-defined]


def jit(function: Callable[P, R]) -> JitFunction[P, R]:
    """Compile `function` (numbers and numpy arrays only) at its first call.

    The machine code is cached on disk, next to the module or in the user's cache folder. If neither is writable, for
    example in a container with a read-only root, every process compiles the function again.
    """
    return JitFunction(function)

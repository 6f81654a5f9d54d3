"""The base of every settings model: frozen, closed, with defaults that are checked like a user's values."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _whole_ms(seconds: float) -> float:
    if abs(seconds * 1000 - round(seconds * 1000)) > 1e-6 * seconds:
        raise ValueError("should be a whole number of milliseconds")
    return seconds


Span = Annotated[float, Field(ge=0.001), AfterValidator(_whole_ms)]
"""Seconds that event time is cut into: whole milliseconds, at least one."""


class Model(BaseModel):
    """A group of settings. Unknown names are refused, so that a misspelled one is never silently ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=False,
        protected_namespaces=(),
    )

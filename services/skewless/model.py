"""The base of every settings model: frozen, closed, with defaults that are checked like a user's values."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator


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

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false where a number is wanted: pydantic takes them for 1 and 0."""
        kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
        parts = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else (value,)
        if kinds & {int, float} and bool not in kinds and any(isinstance(part, bool) for part in parts):
            raise ValueError("should be a number, not true or false")
        return value


def _kinds(annotation: Any) -> set[Any]:
    """Return the plain types that an annotation is made of, as int and None of `int | None`."""
    return {annotation}.union(*map(_kinds, get_args(annotation))) if _is_made(annotation) else {annotation}


def _is_made(annotation: Any) -> bool:
    """Return whether an annotation is made of others, and not of values as a Literal."""
    return bool(get_args(annotation)) and get_origin(annotation) is not Literal

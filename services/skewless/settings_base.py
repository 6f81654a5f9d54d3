"""Base class of all settings models: immutable, no unknown fields, validated defaults. Texts of its problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def _require_whole_ms(seconds: float) -> float:
    if abs(seconds * 1000 - round(seconds * 1000)) > 1e-6 * seconds:
        raise ValueError("should be a whole number of milliseconds")
    return seconds


EventTimeSpan = Annotated[float, Field(ge=0.001), AfterValidator(_require_whole_ms)]
"""Length of a span of event time in seconds: a whole number of milliseconds, at least one."""

EventTimeOffset = Annotated[float, Field(ge=0), AfterValidator(_require_whole_ms)]
"""A shift of event time in seconds: a whole number of milliseconds, at least 0."""


def _is_a_topic(topic: str) -> str:
    if topic in {".", ".."}:
        raise ValueError("must not be . or .., because Kafka rejects these topic names")
    return topic


TopicName = Annotated[
    str, Field(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$"), AfterValidator(_is_a_topic)
]
"""Name of a topic that Kafka accepts."""

MEANINGS = {
    r"^[A-Za-z0-9._-]+$": "must contain only letters without accents, digits, '.', '_' and '-'",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$": (
        "must contain only lower-case letters, digits and '-', and neither begin nor end with '-'"
    ),
    r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$": "must name a function as package.module:function",
    r"^[a-z_][a-z0-9_]*$": "must contain only lower-case letters, digits and '_', and not begin with a digit",
}
"""Patterns of settings in words."""


class InvalidSettingsError(ValueError):
    """Several settings of a group are invalid. For validators, because pydantic collects only a ValueError.

    A problem about one setting begins with its path in the group: `key.field: ...`.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class SettingsModel(BaseModel):
    """A group of settings. Unknown names are rejected, so that a misspelled name is never silently ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=False,
        protected_namespaces=(),
        serialize_by_alias=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject true and false for a number, because pydantic converts them to 1 and 0."""
        items = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else (value,)
        if any(isinstance(item, bool) for item in items) and _is_number(cls, info.field_name or ""):
            raise ValueError("should be a number, not true or false")
        return value


def _is_number(model: type[BaseModel], field: str) -> bool:
    """Return whether a field has numbers, but not booleans."""
    types = _plain_types(model.model_fields[field].annotation)
    return bool(types & {int, float}) and bool not in types


def _plain_types(annotation: Any) -> set[Any]:
    """Return the plain types that an annotation contains, for example int and None for `int | None`."""
    return {annotation}.union(*map(_plain_types, get_args(annotation))) if _has_types(annotation) else {annotation}


def _has_types(annotation: Any) -> bool:
    """Return whether an annotation contains other annotations; the arguments of a Literal are values."""
    return bool(get_args(annotation)) and get_origin(annotation) is not Literal


def without_consequences(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out that a list has too few elements because those that it has are invalid."""
    locations = [problem["loc"] for problem in problems]

    def is_consequence(problem: ErrorDetails) -> bool:
        depth = len(problem["loc"])
        return problem["type"] == "too_short" and any(
            len(location) > depth and location[:depth] == problem["loc"] for location in locations
        )

    return [problem for problem in problems if not is_consequence(problem)]


def plain(problem: ErrorDetails) -> str:
    """Return the message in terms of YAML: for example, users write lists, not tuples."""
    match problem["type"]:
        case "tuple_type":
            return "should be a list"
        case "value_error":
            return str(problem["ctx"]["error"])
        case "too_short":
            return f"should have at least {_elements(problem['ctx']['min_length'])}"
        case "too_long":
            return f"should have at most {_elements(problem['ctx']['max_length'])}"
        case "string_pattern_mismatch" if meaning := MEANINGS.get(problem["ctx"]["pattern"]):
            return meaning
    return problem["msg"].replace("Input should", "should").replace("String should", "should")


def _elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count} elements"

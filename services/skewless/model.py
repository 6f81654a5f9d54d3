"""The base of every settings model: frozen, closed, with defaults that are checked like a user's values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A group of settings. Unknown names are refused, so that a misspelled one is never silently ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        use_attribute_docstrings=False,
        protected_namespaces=(),
    )

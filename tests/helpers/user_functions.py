"""Functions of a user, for `splitter.python`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

CALLS = itertools.count()


def unchanged(documents: list[Any]) -> list[Any]:
    return documents


def same_fields(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return new documents, as most functions do."""
    return [{"key": found["key"], "time": found["time"], "value": found["value"]} for found in documents]


def orders(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any] | None]:
    """Yield the lines of an order in euros. Orders of a test have no tuples, and other currencies fail."""
    for order in documents:
        if order.get("test"):
            yield None
            continue
        order["rate"] = {"EUR": 1, "USD": 0.9}[order.pop("currency")]
        lines = [{"k": line["sku"], "v": line["price"] * order["rate"]} for line in order["lines"]]
        yield {"t": order["at"], "lines": lines}


def columns(documents: list[list[str]]) -> list[dict[str, str]]:
    return [{"k": "-".join(document)} for document in documents]


def words(documents: list[str]) -> list[dict[str, Any]]:
    return [{"k": found, "n": len(found)} for found in map(str.split, documents)]


def types(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    at = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        {"k": np.str_("a"), "v": Decimal("0.30"), "w": np.int64(7), "t": at + timedelta(seconds=1)} for _ in documents
    ]


def kinds(documents: list[dict[str, Any]]) -> list[Any]:
    """Return the field `is`, whatever it is, or something that JSON cannot contain."""
    return [{"k": object()} if found["is"] == "object" else found["is"] for found in documents]


def first(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Forget all records but the first one of a batch, and none if it is alone."""
    return documents[:1] if len(documents) > 1 else []


def without_first(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove the first record of a batch from the list itself."""
    del documents[0]
    return documents


def taken(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take all records out of the list itself."""
    found = documents.copy()
    documents.clear()
    return found


def numbered(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Depend on earlier calls."""
    return [{"k": str(next(CALLS))} for _ in documents]


def of_batch(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Depend on the other records of a batch."""
    return [{"k": str(len(documents))} for _ in documents]


NOT_A_FUNCTION = 5

"""Identifiers of the clusters that are created on this machine."""

from __future__ import annotations

import base64
from uuid import UUID

import pytest

from skewless.lab.local import formatted_storage_cache


def test_new_id_that_would_begin_with_a_dash_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [UUID(bytes=bytes([0xF8] + 15 * [1])), UUID(bytes=bytes([0x40] + 15 * [1]))]
    assert base64.urlsafe_b64encode(drawn[0].bytes).startswith(b"-")
    monkeypatch.setattr("uuid.uuid4", lambda: drawn.pop(0))
    assert formatted_storage_cache._new_id() == "QAEBAQEBAQEBAQEBAQEBAQ"
    assert drawn == []

"""Reads deploy/versions.toml."""

from __future__ import annotations

import tomllib

from helpers.docs_blocks import ROOT

VERSIONS: dict[str, str] = tomllib.loads((ROOT / "deploy" / "versions.toml").read_text(encoding="utf-8"))

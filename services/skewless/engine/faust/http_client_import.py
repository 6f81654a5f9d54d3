"""Keeps Faust's HTTP client out of processes that do not use it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


def import_without_http_client() -> None:
    """Import the module of Faust that imports aiohttp, with an empty class in place of aiohttp's client.

    Faust uses the class in annotations only, unless an app asks for its HTTP client. aiohttp and its first steps, which
    read the certificates of all authorities, are 0.15 s of CPU time, a sixth of the start of a stage. Other code of the
    process can still import aiohttp.
    """
    if "aiohttp" in sys.modules or "faust.types.web" in sys.modules:
        return
    client = ModuleType("aiohttp.client")
    client.__dict__["ClientSession"] = type("ClientSession", (), {})
    sys.modules |= {"aiohttp": ModuleType("aiohttp"), client.__name__: client}
    try:
        importlib.import_module("faust.types.web")
    finally:
        del sys.modules["aiohttp"], sys.modules[client.__name__]

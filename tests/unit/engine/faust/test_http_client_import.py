"""aiohttp stays out of a process of a stage, unless its own code imports it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

IMPORTS = """
import json, sys
{before}
import skewless.service
after = sorted(name for name in sys.modules if name.startswith("aiohttp"))
import aiohttp.client, faust.web.drivers.aiohttp
print(json.dumps([after[:3], aiohttp.client.ClientSession.__module__]))
"""


@pytest.mark.parametrize(
    ("before", "imported"),
    [("", []), ("import aiohttp", ["aiohttp", "aiohttp._cookie_helpers", "aiohttp._http_parser"])],
)
def test_service_import_leaves_aiohttp_as_it_was_and_usable(before: str, imported: list[str]) -> None:
    code = IMPORTS.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [imported, "aiohttp.client"]

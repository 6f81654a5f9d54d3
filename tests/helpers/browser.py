"""A headless Chromium."""

from __future__ import annotations

import re
import subprocess
import tempfile
from html import unescape
from pathlib import Path
from typing import NamedTuple

from helpers import tools

BROWSER_S = 240
VIRTUAL_MS = 10_000
"""Time that passes for the page, in which Chromium does not wait for timers."""


class Opened(NamedTuple):
    """A page that was opened."""

    html: str
    """Its document at the end."""
    console: list[str]
    """Lines of its console: errors of scripts, refused and missing resources."""

    @property
    def texts(self) -> str:
        """The texts of the document, with one space between them."""
        return " ".join(unescape(re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", self.html, flags=re.DOTALL)).split())


def open_page(url: str, picture: Path | None = None, size: tuple[int, int] = (1400, 900)) -> Opened:
    """Open a page and return what it has become. With a `picture`, also writes a PNG of it, with this size in pixels.

    Installs Chromium if it is missing. Skips the test where this is not allowed, except in CI.
    """
    with tempfile.TemporaryDirectory() as profile:
        command = [
            *(tools.chromium(), "--headless", "--no-sandbox", "--disable-gpu"),
            *(
                "--hide-scrollbars",
                f"--window-size={size[0]},{size[1]}",
                "--enable-logging=stderr",
                f"--user-data-dir={profile}",
            ),
            *(f"--virtual-time-budget={VIRTUAL_MS}", "--dump-dom"),
        ]
        if picture is not None:
            command.append(f"--screenshot={picture}")
        done = subprocess.run([*command, url], capture_output=True, text=True, check=True, timeout=BROWSER_S)
    return Opened(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])

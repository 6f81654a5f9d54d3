"""Reads pages of servers on this machine."""

from __future__ import annotations

import urllib.request

# Without the proxy that the environment may name: it does not know the servers of this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read(url: str, timeout_s: float = 1.0) -> str:
    """Return the text of a page. Raises OSError if the server does not answer, or with an error."""
    with _OPENER.open(url, timeout=timeout_s) as answer:
        text: str = answer.read().decode()
    return text

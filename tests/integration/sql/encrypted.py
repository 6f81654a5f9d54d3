"""Database servers that offer TLS."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from helpers.databases import Server
from integration.secured import Keys, make_keys


@contextlib.contextmanager
def encrypted(server: Server, folder: Path) -> Iterator[Keys]:
    """Offer TLS to the clients of a server. Its keys are created in the folder."""
    keys = make_keys(folder)
    for name, source in {"server.key": "broker.key", "server.crt": "broker.crt"}.items():
        shutil.copyfile(folder / source, server.data / name)
        (server.data / name).chmod(0o600)
        if server.user is not None:
            shutil.chown(server.data / name, server.user)
    server.offer_tls(offered=True)
    try:
        yield keys
    finally:
        server.offer_tls(offered=False)

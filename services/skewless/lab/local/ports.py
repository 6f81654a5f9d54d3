"""Finds free TCP ports for servers on this machine."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from pathlib import Path

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Has the range of the ports of outgoing connections, on Linux. Elsewhere it begins above `FIRST_OUTGOING`."""
FIRST_OUTGOING = 32_768
FIRST = 10_000


def find_free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return different ports that are free now at an address; the empty address means all addresses.

    The ports are below the range of outgoing connections, if that leaves enough of them. So no client uses one of them
    before its server starts, and no client that waits for the server connects to itself.
    """
    first = int(OUTGOING.read_text().split()[0]) if OUTGOING.exists() else FIRST_OUTGOING
    candidates = range(FIRST, first if first >= 2 * FIRST else FIRST_OUTGOING)
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            probe, port = stack.enter_context(socket.socket()), random.SystemRandom().choice(candidates)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                ports.append(port)
    return ports

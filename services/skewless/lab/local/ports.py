"""Finds free TCP ports for servers on this machine."""

from __future__ import annotations

import contextlib
import socket


def find_free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return different ports that are free now at an address; the empty address means all addresses."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((address, 0))
        return [probe.getsockname()[1] for probe in probes]

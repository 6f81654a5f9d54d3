"""Ports of servers on this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from skewless.lab.local import ports
from skewless.lab.local.ports import find_free_ports


def test_free_ports_are_below_those_of_outgoing_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "OUTGOING", tmp_path / "range")
    for beginning, end in [("32768", 32_768), ("20000", 20_000), ("1024", 32_768)]:
        ports.OUTGOING.write_text(f"{beginning}\t60999\n")
        found = find_free_ports(20)
        assert len(set(found)) == 20
        assert all(10_000 <= port < end for port in found)
    ports.OUTGOING.unlink()
    assert max(find_free_ports(20)) < 32_768


def test_free_ports_in_use_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", find_free_ports(1)[0])) as server:
        monkeypatch.setattr(ports, "FIRST", (used := server.getsockname()[1]) - 1)
        monkeypatch.setattr(ports, "FIRST_OUTGOING", used + 2)
        monkeypatch.setattr(ports, "OUTGOING", Path("/nonexistent"))
        assert used not in find_free_ports(1)


def test_free_ports_of_an_address_of_another_machine_raise_the_reason() -> None:
    with pytest.raises(OSError, match="Cannot assign requested address"):
        find_free_ports(1, "192.0.2.1")

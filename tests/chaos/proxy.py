"""A TCP proxy before the broker that simulates network faults.

It holds data in one or both directions, or resets connections. Held data is delivered when it is released, even if the
sender has closed its connection. So a request can reach the broker long after its client has given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Self

import psutil

CHUNK = 2**16
Way = Literal["up", "down"]
"""Up is the direction to the broker."""


@dataclass(eq=False)
class Link:
    """One connection through the proxy."""

    port: int
    """The client's own port, which identifies its process."""
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    gates: dict[Way, asyncio.Event] = field(default_factory=lambda: {"up": asyncio.Event(), "down": asyncio.Event()})

    def reset(self) -> None:
        """Reset the connection."""
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy(threading.Thread):
    """Listens on `port`, and connects to the current port of `connect_to`."""

    def __init__(self) -> None:
        super().__init__(name="proxy", daemon=True)
        self.port = 0
        self.target = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._links: set[Link] = set()
        self._held: frozenset[Way] = frozenset()
        self._held_pids: frozenset[int] = frozenset()
        self._refused_pids: frozenset[int] = frozenset()

    def run(self) -> None:
        """Serve until stopped."""
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for link in self._links:
            link.reset()
        self._loop.run_until_complete(asyncio.sleep(0.1))
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.join()

    def hold(self, ways: Iterable[Way], pids: frozenset[int]) -> None:
        """Hold data in these directions on connections of these processes, including new connections."""
        self._call(self._hold, frozenset(ways), pids)

    def reset(self, pids: frozenset[int], *, refuse: bool) -> None:
        """Reset the connections of these processes. With `refuse`, also reset their new connections until `heal`."""
        self._call(self._reset, pids, refuse)

    def heal(self) -> None:
        """Release all held data and accept connections."""
        self._call(self._heal)

    def _call(self, call: Callable[..., None], *args: object) -> None:
        async def run() -> None:
            call(*args)

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _hold(self, ways: frozenset[Way], pids: frozenset[int]) -> None:
        self._held, self._held_pids = ways, pids
        ports = ports_of(pids)
        for link in self._links:
            self._set_gates(link, ports)

    def _set_gates(self, link: Link, ports: set[int]) -> None:
        for way, gate in link.gates.items():
            if way in self._held and link.port in ports:
                gate.clear()
            else:
                gate.set()

    def _reset(self, pids: frozenset[int], refuse: bool) -> None:  # noqa: FBT001 - called by `_call`
        ports = ports_of(pids)
        for link in list(self._links):
            if link.port in ports:
                link.reset()
        self._refused_pids = pids if refuse else frozenset()

    def _heal(self) -> None:
        self._refused_pids = frozenset()
        self._hold(frozenset(), frozenset())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        if port in ports_of(self._refused_pids):
            writer.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        link = Link(port, writer, to_server)
        self._links.add(link)
        self._set_gates(link, ports_of(self._held_pids))
        try:
            await asyncio.gather(
                _pump(reader, to_server, link.gates["up"]), _pump(from_server, writer, link.gates["down"])
            )
        finally:
            self._links.discard(link)
            link.reset()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            await gate.wait()
            writer.write(data)
            await writer.drain()
        await gate.wait()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


def ports_of(pids: Iterable[int]) -> set[int]:
    """Return the local TCP ports of processes."""
    found = set()
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            found |= {each.laddr.port for each in psutil.Process(pid).net_connections("tcp4") if each.laddr}
    return found

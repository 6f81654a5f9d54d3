"""A port that forwards connections to another address."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator

Address = tuple[str, int]


@contextlib.contextmanager
def forwarded(listen: Address, target: Address) -> Iterator[int]:
    """Forward one connection to `target`. Yields the port, which `listen` may leave open (0).

    The block must end the connection.
    """
    family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
    with socket.create_server(listen, family=family) as server:
        thread = threading.Thread(target=_forward, args=(server, target))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)  # ends a thread that still waits for the connection
            thread.join()


def _forward(server: socket.socket, target: Address) -> None:
    with (
        contextlib.suppress(OSError),
        server.accept()[0] as client,
        socket.create_connection(target) as upstream,
        selectors.DefaultSelector() as selector,
    ):
        selector.register(client, selectors.EVENT_READ, (client, upstream))
        selector.register(upstream, selectors.EVENT_READ, (upstream, client))
        while True:
            for ready, _ in selector.select():
                source, receiver = ready.data
                data = source.recv(65_536)
                if not data:
                    return
                receiver.sendall(data)

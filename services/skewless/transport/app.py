"""The Faust app of a stage: a stock `faust.App` with what does not work over this transport refused, not ignored."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faust
from faust.tables import TableManager

from skewless.errors import ConfigurationError
from skewless.shape import Shape
from skewless.transport.outbox import Outbox
from skewless.transport.resumption import Written
from skewless.transport.session import Restore, Session
from skewless.transport.settings import KafkaSettings, TransportSettings

SCHEME = "skewless"


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What the transport needs to know about the stage that it carries."""

    kafka: KafkaSettings
    transport: TransportSettings
    session: Session
    outbox: Outbox
    topic: str
    """Full name of the one topic that is consumed."""
    partitions: int | None = None
    """How many partitions the topic has to have; None takes what there is."""
    group: str
    member: str
    """Group instance id: stable over restarts, so that a restart is no rebalance (KIP-345)."""
    restore: Restore = lambda _positions: {}
    """Reads the changelogs of partitions that are being taken over; runs on the consumer's thread."""
    internal: bool = False
    """Whether the pipeline itself writes the topic that is consumed."""
    written: Written | None = None
    """Looks for results of the group where it has no checkpoint."""
    shape: Shape | None = None
    """State schema of the group's checkpoints."""
    end_of_partition: bool = False
    """Whether the session is told when a partition has been read to its end."""
    skip_to: Mapping[int, int] | None = None
    """Offsets by partition below which nothing is read, by the user's choice; None where there is no such choice."""
    patience_s: float = 1.0
    """How long a slow partition may hold up the others before it is paused."""


class NoTables(TableManager):
    """Faust gives an app a second for its tables to be made, before it reads anything; this app has none."""

    async def on_start(self) -> None:
        """Go on at once, otherwise as Faust does."""
        await self._update_channels()
        await self.recovery.start()


class App(faust.App):
    """A Faust app whose agents are handed batches and commit through its session."""

    def __init__(self, wiring: Wiring, **options: Any) -> None:
        self.wiring = wiring
        self.start_failure: BaseException | None = None
        """What the app could not start for."""
        for name, (bad, why) in _REFUSED.items():
            if name in options and bad(options[name]):
                raise ConfigurationError(f"faust option {name}={options[name]!r} does not work here: {why}")
        # Faust makes this folder when it starts and never needs it: one for all, so that none is left by who is killed.
        scratch = Path(tempfile.gettempdir()) / f"skewless-faust-{os.getuid()}"
        super().__init__(
            wiring.group,
            **{
                "broker": f"{SCHEME}://{wiring.kafka.bootstrap_servers.split(',')[0]}",
                "datadir": str(scratch),
                "web_enabled": False,
                "topic_allow_declare": False,
                "topic_disable_leader": True,
                "stream_wait_empty": False,
                "TableManager": NoTables,
                "stream_recovery_delay": 0.0,
                "stream_buffer_maxsize": 4096,
                "broker_session_timeout": wiring.transport.session_timeout_s,
                **options,
            },
        )

    @property
    def session(self) -> Session:
        """Where agents process their batches."""
        return self.wiring.session

    def input_topic(self) -> Any:
        """Return the topic that the stage's agent reads."""
        # Without acks: the session keeps its own. Faust's compiled stream would append each offset to the consumer's
        # lists itself, past `Consumer.ack`, and only Faust's own commits, which do not run here, empty these lists.
        return self.topic(self.wiring.topic, value_serializer="raw", acks=False)

    def Table(self, *_args: Any, **_options: Any) -> Any:  # noqa: N802 - Faust's name
        """Refuse tables: their changelogs would be written outside of the transaction."""
        raise ConfigurationError("faust tables do not work over this transport: keep state in the stage's step")

    def FlowControlQueue(  # noqa: N802 - Faust's name
        self,
        maxsize: int | None = None,
        *,
        clear_on_resume: bool = False,  # noqa: ARG002 - Faust's interface
    ) -> Any:
        """Make a queue that is never cleared.

        Faust clears its streams' queues some time after each assignment, and with them batches of that very assignment.
        Batches of an earlier one are told by the session.
        """
        return super().FlowControlQueue(maxsize, clear_on_resume=False)

    GlobalTable = Table
    SetTable = Table
    SetGlobalTable = Table

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start, and stop at the end. Faust's own start returns after the first assignment, which may never come."""
        start = asyncio.create_task(self.start())
        start.add_done_callback(self._note_start)
        try:
            yield
        finally:
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await start
            await self.stop()

    def _note_start(self, start: asyncio.Task[None]) -> None:
        if not start.cancelled() and (error := start.exception()) is not None:
            self.start_failure = error


_REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "web_enabled": (bool, "its web server shows tables and routes requests without asking who calls"),
    "processing_guarantee": (
        lambda value: "exactly_once" in str(value).lower(),
        "offsets and outputs would go into different transactions; set transport.guarantee instead",
    ),
    "topic_allow_declare": (bool, "topics are made by `skewless topics apply`"),
    "broker_credentials": (
        lambda value: value is not None,
        "librdkafka cannot take an ssl.SSLContext; set kafka.sasl and kafka.tls instead",
    ),
}

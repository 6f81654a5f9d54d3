"""The Faust app of a stage: a `faust.App` that refuses the features that do not work over this transport."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faust
from faust.tables import TableManager

from skewless.engine.consumer_loop import FindInputs
from skewless.engine.executor import Restore, StepExecutor
from skewless.engine.output import Output
from skewless.engine.start_checks import Input, Written
from skewless.errors import ConfigurationError
from skewless.kafka.consumer.read_compacted import ReadProgress
from skewless.kafka.settings import KafkaSettings, TransportSettings

SCHEME = "skewless"


@dataclass(frozen=True, kw_only=True)
class StageRuntime:
    """The components and settings with which the engine runs a stage."""

    kafka: KafkaSettings
    transport: TransportSettings
    executor: StepExecutor
    output: Output
    inputs: tuple[Input, ...]
    """The topics that are consumed, at least one. They have the same group."""
    find_inputs: FindInputs | None = None
    """Returns the inputs among the topics of the cluster, for a stage whose topics and partitions may become more."""
    group_instance_id: str
    """The same after a restart, so that a restart causes no rebalance (KIP-345)."""
    restore: Restore = lambda _checkpoints: {}
    """Restores the state of assigned partitions from their changelogs. Runs in a thread."""
    restore_progress: ReadProgress = field(default_factory=ReadProgress)
    """Follows the reads of changelogs by `restore`, for the metrics."""
    written: Written | None = None
    """Looks for results of the group in partitions that have no checkpoint; None disables the check."""
    end_of_partition: bool = False
    """Whether the executor is notified when a partition has been read to its end."""
    pause_after_s: float = 1.0
    """Time for which a full partition may block the others before it is paused."""

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.inputs[0].group

    @property
    def topics(self) -> tuple[str, ...]:
        """Full names of the topics that are consumed."""
        return tuple(source.topic for source in self.inputs)


class NoopTableManager(TableManager):
    """Table manager of an app without tables. Faust's own waits one second for tables before anything is read."""

    async def on_start(self) -> None:
        """Start as Faust's table manager does, but without the wait."""
        await self._update_channels()
        await self.recovery.start()


class NoHttpClient:
    """HTTP client of an app that uses none. Faust's default imports aiohttp, a sixth of the start of a stage."""


class App(faust.App):
    """A Faust app that delivers batches to its agents. The agents process them with the app's executor."""

    def __init__(self, runtime: StageRuntime, **options: Any) -> None:
        self.runtime = runtime
        self.start_failure: BaseException | None = None
        """Error that prevented the start of the app."""
        for name, (is_refused, reason) in _REFUSED.items():
            if name in options and is_refused(options[name]):
                raise ConfigurationError(f"faust option {name}={options[name]!r} does not work here: {reason}")
        # Faust creates this folder at start and does not use it. All processes share one, so that a killed process
        # leaves none behind.
        scratch = Path(tempfile.gettempdir()) / f"skewless-faust-{os.getuid()}"
        super().__init__(
            runtime.group,
            **{
                "broker": f"{SCHEME}://{runtime.kafka.bootstrap_servers.split(',')[0]}",
                "datadir": str(scratch),
                "web_enabled": False,
                "topic_allow_declare": False,
                "topic_disable_leader": True,
                "stream_wait_empty": False,
                "TableManager": NoopTableManager,
                "HttpClient": NoHttpClient,
                "stream_recovery_delay": 0.0,
                "stream_buffer_maxsize": 4096,
                "broker_session_timeout": runtime.transport.session_timeout_s,
                **options,
            },
        )

    @property
    def executor(self) -> StepExecutor:
        """Processes the batches of the agents."""
        return self.runtime.executor

    def input_topic(self) -> Any:
        """Return the topics that the stage's agent reads, as one topic of Faust."""
        # Without acks: the executor tracks processed offsets. Faust's compiled stream would append each offset to lists
        # of the consumer, bypassing `Consumer.ack`. Only Faust's own commits empty these lists, and they do not run
        # here, so the lists would grow without end.
        return self.topic(*self.runtime.topics, value_serializer="raw", acks=False)

    def Table(self, *_args: Any, **_options: Any) -> Any:  # noqa: N802 - Faust's name
        """Refuse tables: their changelogs would be written outside of the transaction."""
        raise ConfigurationError("faust tables do not work over this transport: keep state in the stage's step")

    def FlowControlQueue(  # noqa: N802 - Faust's name
        self,
        maxsize: int | None = None,
        *,
        clear_on_resume: bool = False,  # noqa: ARG002 - Faust's interface
    ) -> Any:
        """Return a queue that is never cleared."""
        # Faust clears the queues of its streams some time after each assignment, which would drop batches of that
        # assignment. The executor recognizes stale batches of an earlier assignment by their generation.
        return super().FlowControlQueue(maxsize, clear_on_resume=False)

    GlobalTable = Table
    SetTable = Table
    SetGlobalTable = Table

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the app until the end of the block."""
        # In a task: Faust's start returns after the first assignment, which may never happen.
        start = asyncio.create_task(self.start())
        start.add_done_callback(self._store_start_failure)
        try:
            yield
        finally:
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await start
            await self.stop()

    def _store_start_failure(self, start: asyncio.Task[None]) -> None:
        if not start.cancelled() and (error := start.exception()) is not None:
            self.start_failure = error


_REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "web_enabled": (bool, "its web server shows tables and routes requests without authentication"),
    "processing_guarantee": (
        lambda value: "exactly_once" in str(value).lower(),
        "offsets and outputs would go into different transactions; set transport.guarantee instead",
    ),
    "topic_allow_declare": (bool, "`skewless topics apply` creates the topics"),
    "broker_credentials": (
        lambda value: value is not None,
        "librdkafka does not accept an ssl.SSLContext; set kafka.sasl and kafka.tls instead",
    ),
}

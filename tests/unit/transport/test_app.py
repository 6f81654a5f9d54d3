"""What the app changes about Faust's own behaviour, without a broker."""

from __future__ import annotations

from faust import StreamT

from skewless.runner import build, wire
from skewless.settings import PipelineSettings
from skewless.transport.app import App
from skewless.transport.batch import MessageBatch


async def test_batches_outlive_the_end_of_a_rebalance_in_their_queue() -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "s"}})
    app = App(wire("router", build("router", settings, drain=False), settings, 0, drain=False))

    @app.agent(app.input_topic(), name="router")  # type: ignore[untyped-decorator]
    async def route(batches: StreamT[MessageBatch]) -> None:
        """Take nothing."""

    queue = route.channel.queue
    queue.put_nowait("batch")
    app.flow_control.resume()
    assert queue.qsize() == 1

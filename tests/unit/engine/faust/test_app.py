"""Faust behaviour that the app changes, without a broker."""

from __future__ import annotations

from faust import StreamT

from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.faust.app import App
from skewless.engine.message_batch import MessageBatch
from skewless.service import build, build_runtime


async def test_faust_app_end_of_a_rebalance_keeps_queued_batches() -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "s"}})
    app = App(
        build_runtime("router", build("router", settings, drain=False, source_partitions=1), settings, 0, drain=False)
    )

    @app.agent(app.input_topic(), name="router")  # type: ignore[untyped-decorator]
    async def route(batches: StreamT[MessageBatch]) -> None:
        """Ignore the stream."""

    queue = route.channel.queue
    queue.put_nowait("batch")
    app.flow_control.resume()
    assert queue.qsize() == 1

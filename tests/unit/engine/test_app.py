"""The Faust app of a stage, without a broker."""

from __future__ import annotations

import subprocess
import sys

START = """
import asyncio, sys
from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.engine.app import App
from skewless.service import build_runtime
from skewless.stages.agent import declare_agent
from skewless.stages.built_stage import build

async def main():
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "s"}})
    start = StageStart(topology.stage("worker"), settings, {settings.topic(row.name): 1 for row in topology.TOPICS})
    stage = build(start)
    app = App(build_runtime(start, stage, 0))
    declare_agent(app, stage.processor)
    await app.start()
    await app.stop()
    print("aiokafka" in sys.modules)

asyncio.run(main())
"""


def test_app_start_and_stop_imports_no_kafka_client_of_faust() -> None:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"

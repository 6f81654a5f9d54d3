"""The Faust app of a stage, without a broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_app_start_and_stop_creates_no_folder_and_imports_no_kafka_client_of_faust(tmp_path: Path) -> None:
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", START], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path, env=environ
    )
    assert (done.stdout, list(tmp_path.iterdir())) == ("False\n", [])

"""Forks the Python processes of Spark's tasks from a process that has imported their modules.

Spark starts it as `python -m skewless.spark.python_daemon`, instead of `pyspark.daemon`, where it runs tasks on this
machine. Otherwise each of these processes imports the modules itself, which costs more than a small task.
"""

from __future__ import annotations

import gc

import pandas as pd  # noqa: F401 - pyarrow imports it at its first conversion of a NumPy array
import pyspark.worker  # noqa: F401 - imported for the processes that are forked
from pyspark.daemon import manager

import skewless.spark.batch_pipeline
import skewless.spark.stream_merge
import skewless.spark.stream_source  # noqa: F401 - as above

if __name__ == "__main__":
    # The forked processes collect garbage after each task, and need not look at the modules.
    gc.freeze()
    manager()

"""pandas stays out of a process of a stage, unless its own code imports it."""

from __future__ import annotations

import json
import subprocess
import sys

CONVERSIONS = """
import json, sys
import numpy as np, pyarrow as pa
{before}
from skewless.cli.pandas_import import keep_pandas_out
hooks = list(sys.meta_path)
keep_pandas_out()
pa.array(np.arange(3))
pa.chunked_array([pa.array([1]), pa.array([2])]).to_numpy()
pa.array(["a", None]).to_numpy(zero_copy_only=False)
after = "pandas" in sys.modules
import pandas
print(json.dumps([after, sys.meta_path == hooks, pandas.Series([1, 2]).sum().item()]))
"""


def outcome(before: str = "") -> list[object]:
    """Run conversions in a separate process: is pandas imported, are the import hooks as before, does pandas work."""
    code = CONVERSIONS.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    found: list[object] = json.loads(done.stdout)
    return found


def test_conversions_after_keep_pandas_out_do_not_import_pandas() -> None:
    assert outcome() == [False, True, 3]


def test_keep_pandas_out_after_an_import_of_pandas_changes_nothing() -> None:
    assert outcome("import pandas") == [True, True, 3]

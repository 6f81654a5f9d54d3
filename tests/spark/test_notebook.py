"""The blocks of the page about notebooks run in order, in the user's own Spark session."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.docs_blocks import ROOT, blocks
from helpers.followed_page import set_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

PAGE = ROOT / "docs" / "how-to" / "notebook.md"


def test_notebook_page_blocks_run_in_order_give_the_documented_results(
    broker: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with set_up(PAGE, tmp_path, broker) as (environment, _):
        monkeypatch.chdir(tmp_path / "work")
        for name, value in {**environment, "PYSPARK_PYTHON": sys.executable}.items():
            monkeypatch.setenv(name, value)
        follow_notebook(spark)


def follow_notebook(spark: SparkSession) -> None:
    """Run the cells of the page, and check their results."""
    notebook: dict[str, Any] = {}
    shown = []
    for block in blocks(PAGE):
        if block.language == "python":
            exec(block.text, notebook)  # noqa: S102 - the project's own page
            last = ast.parse(block.text).body[-1]
            if isinstance(last, ast.Expr) and isinstance(last.value, ast.Name):
                shown.append(notebook[last.value.id])
    assert notebook["spark"] is spark
    # The last one is a Series of pandas.
    assert [each._repr_html_().count("<tr>") > 1 for each in shown[:-1]] == [True] * 4
    assert notebook["report"].measures["cardinality"] == 2
    assert notebook["plan"].workers == 4
    assert notebook["loads"]["even", 4] < notebook["loads"]["key", 4]
    assert [(row.key, row.sum_price) for row in notebook["rows"]] == [
        ("ada", Decimal("12.50")),
        ("bob", Decimal("3.99")),
        ("ada", Decimal("1.00")),
    ]
    assert notebook["total"].to_dict() == {"ada": 13.5, "bob": 3.99}
    assert dict(notebook["history"].to_numpy().tolist()) == {"ada": Decimal("13.50"), "bob": Decimal("3.99")}
    assert notebook["answer"].tuples == 3
    assert notebook["answer"].rows.columns == [
        *("key", "window_start", "window_end", "sum_price", "count", "partition"),
    ]
    (again,) = notebook["pipeline"].batch(spark).rows.groupBy().sum("count").collect()
    assert again[0] == 3


def test_notebook_page_session_of_a_python_that_is_not_in_path_runs_tasks_in_it(tmp_path: Path) -> None:
    for block in blocks(PAGE):
        if block.name:
            (tmp_path / block.name).write_text(block.text)
    (tmp_path / "python3").symlink_to("/bin/false")
    cells = [block.text for block in blocks(PAGE) if "SparkSession" in block.text]
    program = "\n".join(["import skewless as sk", "pipeline = sk.Pipeline.load('pipeline.yaml')", *cells])
    variables = {"PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]]), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"} | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "12.50" in done.stdout


def test_notebook_page_imports_only_the_package_plotly_spark_and_modules_of_python() -> None:
    code = "\n".join(block.text for block in blocks(PAGE) if block.language == "python")
    imported = [
        ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert imported == [
        "import skewless as sk",
        "import plotly.express as px",
        "import os",
        "import sys",
        "from pyspark.sql import SparkSession",
    ]

"""Who may import whom: read from the source of every module, so that a new file is checked by being there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from skewless import topology

SERVICES = Path(__file__).parents[2] / "services"
PACKAGE = SERVICES / "skewless"

PURE_LIBRARIES = (
    "__future__", "abc", "array", "base64", "bisect", "collections", "contextlib", "dataclasses", "enum", "functools",
    "heapq", "itertools", "math", "mmh3", "numba", "numpy", "operator", "pyarrow", "pydantic", "struct", "types",
    "typing",
)  # fmt: skip
"""All that the pure core may know besides itself and the error tree, but for their parts that read, write or draw."""

IMPURE_PARTS = (
    "numpy.random", "pyarrow.csv", "pyarrow.dataset", "pyarrow.feather", "pyarrow.flight", "pyarrow.fs", "pyarrow.ipc",
    "pyarrow.json", "pyarrow.orc", "pyarrow.parquet",
)  # fmt: skip

STAGES = {"splitter", "router", "worker", "aggregator", "observer", "sink", "join"}

STEP_LIBRARIES = (*PURE_LIBRARIES, "msgspec")
"""All that a step, and what all steps share, may know besides this package: they encode records, and no more."""

SHARED = ("step.py", "records.py", "public_records.py", "changelog.py", "windows_step.py")
"""What steps share; `records.py` alone reads and writes Arrow streams, in memory."""


def modules(folder: str = ".", pattern: str = "*.py") -> list[Path]:
    return sorted((PACKAGE / folder).rglob(pattern))


def imports(path: Path, root: Path = SERVICES) -> Iterator[str]:
    """Yield every module that `path` names in an import; `from a import b` gives a.b too, since b may be a module."""
    package = path.relative_to(root).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *filter(None, (node.module,))))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def own(path: Path) -> set[str]:
    """Collect what `path` imports of this package, as `skewless.x...`; the package itself left out."""
    return {name for name in imports(path) if name.startswith("skewless.")}


def inside(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def stage_of(name: str) -> str | None:
    part = name.split(".")[1] if name.startswith("skewless.") else ""
    return part if part in STAGES else None


def show(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", modules("algorithms"), ids=show)
def test_algorithms_know_only_data_and_themselves(path: Path) -> None:
    assert {name for name in imports(path) if not inside(name, "skewless", *PURE_LIBRARIES)} == set()
    assert {name for name in imports(path) if inside(name, *IMPURE_PARTS)} == set()
    assert {
        name for name in own(path) if not inside(name, "skewless.algorithms", "skewless.errors", "skewless.model")
    } == set()


@pytest.mark.parametrize("path", modules("algorithms"), ids=show)
def test_algorithms_call_nothing_that_reads_writes_or_draws(path: Path) -> None:
    assert impure_calls(path) == set()
    attributes = {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)}
    assert attributes & {"load", "save"} == set()


def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def impure_calls(path: Path) -> set[str]:
    names = {node.id for node in nodes(path) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)}
    banned = {"open", "print", "input", "exec", "eval", "__import__"}
    return names & banned | attributes & {"random", "fromfile", "tofile", "memmap"}


def step_modules() -> list[Path]:
    return [path for path in modules(pattern="step.py") if path.parent != PACKAGE]


def test_the_judgement_of_records_is_as_pure_as_a_step() -> None:
    path = PACKAGE / "splitter" / "judgement.py"
    allowed = ("skewless.algorithms", "skewless.settings", "skewless.splitter")
    assert {name for name in own(path) if not inside(name, *allowed)} == set()
    assert {name for name in imports(path) if not inside(name, "skewless", *STEP_LIBRARIES)} == set()
    assert impure_calls(path) == set()


@pytest.mark.parametrize("path", step_modules(), ids=show)
def test_a_step_knows_algorithms_records_and_its_own_folder(path: Path) -> None:
    shared = ("algorithms", "changelog", "errors", "model", "public_records", "records", "step", "windows_step")
    allowed = [f"skewless.{name}" for name in (*shared, path.parent.name)]
    assert {name for name in own(path) if not inside(name, *allowed)} == set()
    assert {name for name in own(path) if name.split(".")[-1] == "agent"} == set()
    assert {name for name in imports(path) if not inside(name, "skewless", *STEP_LIBRARIES)} == set()
    assert {name for name in imports(path) if inside(name, *IMPURE_PARTS)} == set()
    assert impure_calls(path) == set()


@pytest.mark.parametrize("name", SHARED)
def test_what_steps_share_is_pure_too(name: str) -> None:
    path = PACKAGE / name
    allowed = ("algorithms", "changelog", "errors", "public_records", "records", "step")
    assert {module for module in own(path) if not inside(module, *(f"skewless.{name}" for name in allowed))} == set()
    assert {module for module in imports(path) if not inside(module, "skewless", *STEP_LIBRARIES)} == set()
    assert impure_calls(path) == set()


def test_the_observers_sketches_are_the_one_further_library_of_a_stage() -> None:
    path = PACKAGE / "observer" / "run.py"
    assert {name for name in imports(path) if not inside(name, *STEP_LIBRARIES)} == {"datasketches"}
    assert own(path) == set()


def test_every_stage_of_the_topology_is_held_to_these_rules() -> None:
    assert {stage.name for stage in topology.STAGES} <= STAGES
    assert {path.parent.name for path in step_modules()} >= {stage.name for stage in topology.STAGES}


@pytest.mark.parametrize("path", [path for stage in sorted(STAGES) for path in modules(stage)], ids=show)
def test_no_stage_knows_another_stage(path: Path) -> None:
    mine = path.relative_to(PACKAGE).parts[0]
    assert {stage_of(name) for name in own(path)} <= {mine, None}


@pytest.mark.parametrize("path", modules(), ids=show)
def test_only_the_transport_knows_confluent_kafka(path: Path) -> None:
    used = any(inside(name, "confluent_kafka") for name in imports(path))
    assert not used or show(path).startswith("transport/")


@pytest.mark.parametrize("path", modules("spark"), ids=show)
def test_spark_knows_no_running_part_of_the_stream(path: Path) -> None:
    running = {name for name in own(path) if inside(name, "skewless.transport", "skewless.local", "skewless.cli")}
    agents = {name for name in own(path) if stage_of(name) and "agent" in name.split(".")}
    assert running | agents == set()


@pytest.mark.parametrize("path", [path for path in modules() if not show(path).startswith("spark/")], ids=show)
def test_only_commands_know_spark(path: Path) -> None:
    used = {name for name in imports(path) if inside(name, "pyspark", "skewless.spark")}
    assert not used or show(path).startswith("commands/")


def test_relative_imports_are_seen(tmp_path: Path) -> None:
    module = tmp_path / "skewless" / "router" / "step.py"
    module.parent.mkdir(parents=True)
    module.write_text("from ..worker import step\nfrom . import settings\nimport os.path\n", encoding="utf-8")
    names = set(imports(module, tmp_path))
    assert {"skewless.worker.step", "skewless.router.settings", "os.path"} <= names

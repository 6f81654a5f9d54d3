"""The floors of the package: which module may import which. Read from the source, so every new file is checked."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from skewless import topology

SERVICES = Path(__file__).parents[2] / "services"
PACKAGE = SERVICES / "skewless"

FLOORS = (
    ("errors", "topology", "settings_base", "metric_definition", "time_zone"),
    ("algorithms",),
    ("wire", "parsing", "aggregate_registry", "client"),
    ("kafka",),
    ("engine",),
    ("sql",),
    ("stages", "monitoring"),
    ("config",),
    ("service",),
    ("lab.local", "lab.progress", "lab.simulation", "lab.datasets"),
    ("spark", "smoke_test", "asyncapi", "operations"),
    ("lab",),
    ("cli",),
    ("apidocs",),
    ("__main__",),
)
"""Folders and modules from floor 0 up. A module imports only modules of its own floor and of lower ones."""

PURE_LIBRARIES = (
    "__future__", "abc", "array", "base64", "bisect", "collections", "contextlib", "dataclasses", "decimal", "enum",
    "fractions", "functools", "hashlib", "heapq", "itertools", "math", "mmh3", "numba", "numpy", "operator", "pyarrow",
    "pydantic", "struct", "types", "typing",
)  # fmt: skip
"""Libraries that the pure core may import, without their modules for I/O or random numbers."""

IMPURE_PARTS = (
    "numpy.random", "pyarrow.csv", "pyarrow.dataset", "pyarrow.feather", "pyarrow.flight", "pyarrow.fs", "pyarrow.ipc",
    "pyarrow.json", "pyarrow.orc", "pyarrow.parquet",
)  # fmt: skip

STEP_LIBRARIES = (*PURE_LIBRARIES, "msgspec")
"""Libraries that a step may import. Steps also encode records."""

STEP_FLOORS = (
    "algorithms",
    "wire",
    "parsing",
    "errors",
    "engine.step",
    "stages.source_partition",
    "stages.windowed_step",
)
"""What a step may import of this package, next to its own folder."""

STAGE_FILES = {"settings", "step", "metrics", "agent"}
"""Modules of every stage."""


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
    """Return the modules of this package that `path` imports, relative to the package, as `kafka.errors...`."""
    return {name.removeprefix("skewless.") for name in imports(path) if name.startswith("skewless.")}


def inside(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def floor_of(name: str) -> int:
    """Return the floor of a module, by the longest entry that contains it."""
    found = [(len(entry), floor) for floor, entries in enumerate(FLOORS) for entry in entries if inside(name, entry)]
    return max(found)[1]


def graph() -> Mapping[str, set[str]]:
    """Map every module to the modules that it imports, also inside functions and for types alone."""
    known = {module_of(path): path for path in modules()}
    return {name: set(_modules_imported(path, known)) - {name} for name, path in known.items()}


def _modules_imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and inside(node.module or "", "skewless"):
            base = (node.module or "").removeprefix("skewless").removeprefix(".")
            for alias in node.names:
                # `from package import module` needs the module alone.
                name = f"{base}.{alias.name}".removeprefix(".")
                yield name if name in known else base


def show(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", [path for path in modules() if path != PACKAGE / "__init__.py"], ids=show)
def test_module_imports_no_higher_floor(path: Path) -> None:
    own_floor = floor_of(module_of(path))
    assert {
        name for name in own(path) if (PACKAGE / name.split(".")[0]).exists() and floor_of(name) > own_floor
    } == set()


def test_modules_import_each_other_without_a_cycle() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_floors_every_entry_exists() -> None:
    entries = {entry for floor in FLOORS for entry in floor}
    names = {module_of(path) for path in modules()}
    assert entries <= names
    assert {name.split(".")[0] for name in names if name} == {entry.split(".")[0] for entry in entries}


@pytest.mark.parametrize("path", modules("algorithms"), ids=show)
def test_algorithm_imports_only_pure_libraries_and_the_ground_floor(path: Path) -> None:
    assert {name for name in imports(path) if not inside(name, "skewless", *PURE_LIBRARIES)} == set()
    assert {name for name in imports(path) if inside(name, *IMPURE_PARTS)} == set()


@pytest.mark.parametrize("path", modules("algorithms"), ids=show)
def test_algorithm_calls_nothing_that_reads_writes_or_draws(path: Path) -> None:
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
    return modules("stages", "*step.py")


@pytest.mark.parametrize("path", [*step_modules(), PACKAGE / "parsing" / "validation.py"], ids=show)
def test_step_imports_only_pure_parts_and_its_own_folder(path: Path) -> None:
    allowed = (*STEP_FLOORS, f"stages.{path.parent.name}")
    assert {name for name in own(path) if not inside(name, *allowed)} == set()
    assert {name for name in own(path) if name.split(".")[-1] == "agent"} == set()
    assert {name for name in imports(path) if not inside(name, "skewless", *STEP_LIBRARIES)} == set()
    assert {name for name in imports(path) if inside(name, *IMPURE_PARTS)} == set()
    assert impure_calls(path) == set()


@pytest.mark.parametrize("path", [path for path in modules("wire") if path.name != "columns.py"], ids=show)
def test_wire_module_is_pure(path: Path) -> None:
    """`columns.py` alone reads and writes Arrow streams, in memory."""
    assert {name for name in imports(path) if not inside(name, "skewless", *STEP_LIBRARIES)} == set()
    assert impure_calls(path) == set()


def test_observer_run_statistics_import_only_the_sketches() -> None:
    path = PACKAGE / "stages" / "observer" / "run_statistics.py"
    assert {name for name in imports(path) if not inside(name, *STEP_LIBRARIES)} == {"datasketches"}
    assert own(path) == set()


STAGE_FOLDERS = sorted({stage.builder.split(".")[2] for stage in topology.STAGES})
"""Folders of the stages. Stages with the same step share one."""


@pytest.mark.parametrize("folder", STAGE_FOLDERS)
def test_stage_of_the_topology_has_the_files_of_a_stage(folder: str) -> None:
    assert {path.stem for path in modules(f"stages/{folder}")} >= STAGE_FILES


@pytest.mark.parametrize("path", [path for path in modules("stages") if path.parent.name != "stages"], ids=show)
def test_stage_imports_no_other_stage(path: Path) -> None:
    others = set(STAGE_FOLDERS) - {path.parent.name}
    assert {name for name in own(path) if inside(name, *(f"stages.{stage}" for stage in others))} == set()


@pytest.mark.parametrize("path", modules(), ids=show)
def test_module_outside_kafka_and_engine_does_not_import_confluent_kafka(path: Path) -> None:
    used = any(inside(name, "confluent_kafka") for name in imports(path))
    assert not used or show(path).startswith(("kafka/", "engine/"))


@pytest.mark.parametrize("path", modules("spark"), ids=show)
def test_spark_module_imports_no_running_part_of_the_stream(path: Path) -> None:
    assert {name for name in own(path) if inside(name, "engine", "stages", "service")} == set()


@pytest.mark.parametrize("path", [path for path in modules() if not show(path).startswith("spark/")], ids=show)
def test_module_outside_cli_and_demo_does_not_import_spark(path: Path) -> None:
    used = {name for name in imports(path) if inside(name, "pyspark", "skewless.spark")}
    assert not used or show(path).startswith(("cli/", "lab/demo/"))


def test_import_parser_relative_import_is_resolved(tmp_path: Path) -> None:
    module = tmp_path / "skewless" / "router" / "step.py"
    module.parent.mkdir(parents=True)
    module.write_text("from ..worker import step\nfrom . import settings\nimport os.path\n", encoding="utf-8")
    names = set(imports(module, tmp_path))
    assert {"skewless.worker.step", "skewless.router.settings", "os.path"} <= names

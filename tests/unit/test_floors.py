"""The floors of the package: which module may import which. Read from the source, so every new file is checked."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from helpers.source_files import PACKAGE, assert_none, place, syntax
from skewless import topology

SERVICES = PACKAGE.parent

STAGE_FOLDERS = sorted({stage.builder.split(".")[2] for stage in topology.STAGES})
"""Folders of the stages. Stages with the same step share one."""

STAGE_SETTINGS = (
    *("source_topics", "table_settings"),
    *(f"{folder}.settings" for folder in STAGE_FOLDERS if (PACKAGE / "stages" / folder / "settings.py").exists()),
)
"""What the settings of a pipeline consist of, in the folder `stages`. Stages with the same section share it."""

FLOORS = (
    (
        *("errors", "entry_points", "topology", "settings_base", "login_settings", "metric_definition", "time_zone"),
        *("times", "version"),
    ),
    ("algorithms",),
    ("wire", "parsing", "schema_registry", "aggregate_registry", "client"),
    ("kafka",),
    ("engine",),
    ("sql",),
    ("monitoring", *(f"stages.{name}" for name in STAGE_SETTINGS)),
    ("config",),
    ("stages",),
    ("service",),
    ("in_memory", "lab.local", "lab.progress", "lab.simulation", "lab.datasets"),
    ("spark", "smoke_test", "asyncapi", "operations"),
    ("lab",),
    ("api", "testing", "cli"),
    ("__main__", "spark.__main__"),
)
"""Folders and modules from floor 0 up. A module imports only modules of its own floor and of lower ones."""

PURE_LIBRARIES = (
    "__future__", "abc", "array", "base64", "bisect", "collections", "contextlib", "dataclasses", "decimal", "enum",
    "fractions", "functools", "hashlib", "heapq", "itertools", "math", "mmap", "mmh3", "numba", "numpy", "operator",
    "pyarrow", "pydantic", "struct", "types", "typing", "zlib",
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
    "stages.partials_step",
    "stages.source_partition",
    "stages.stateless_step",
    "stages.windowed_step",
)
"""What a step may import of this package, next to its own folder."""

STAGE_FILES = {"step", "builder"}
"""Modules of every stage."""


Names = Iterable[tuple[int, str]]
"""Names in a file, each with its line."""


def modules(folder: str = ".", pattern: str = "*.py") -> list[Path]:
    return sorted((PACKAGE / folder).rglob(pattern))


def imports(path: Path, root: Path = SERVICES) -> Iterator[tuple[int, str]]:
    """Yield every module that `path` names in an import; `from a import b` gives a.b too, since b may be a module."""
    package = path.relative_to(root).with_suffix("").parts[:-1]
    for line, module, names, level in syntax(path).imports:
        above = package[: len(package) - level + 1] if level else ()
        base = ".".join((*above, *filter(None, (module,))))
        yield line, base
        yield from ((line, f"{base}.{name}") for name in names)


def own(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the modules of this package that `path` imports, relative to the package, as `kafka.errors...`."""
    return ((line, name.removeprefix("skewless.")) for line, name in imports(path) if name.startswith("skewless."))


def offenders(paths: Iterable[Path], rule: Callable[[Path], Names]) -> Iterator[str]:
    return (f"{place(path, line)}: {name}" for path in paths for line, name in rule(path))


def inside(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


@cache
def floor_of(name: str) -> int:
    """Return the floor of a module, by the longest entry that contains it."""
    found = [(len(entry), floor) for floor, entries in enumerate(FLOORS) for entry in entries if inside(name, entry)]
    return max(found)[1]


def graph() -> Mapping[str, set[str]]:
    """Map every module to the modules that it imports, also inside functions and for types alone.

    The package itself is left out: it imports the Python API when a name is used, and every module is inside it.
    """
    known = {module_of(path): path for path in modules() if path != PACKAGE / "__init__.py"}
    return {name: set(_modules_imported(path, known)) - {name} for name, path in known.items()}


def _modules_imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for found in syntax(path).imports:
        if found.names and inside(found.module, "skewless"):
            base = found.module.removeprefix("skewless").removeprefix(".")
            for imported in found.names:
                # `from package import module` needs the module alone.
                name = f"{base}.{imported}".removeprefix(".")
                yield name if name in known else base


def show(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_module_imports_no_higher_floor() -> None:
    def higher(path: Path) -> Names:
        own_floor = floor_of(module_of(path))
        packages = ((line, name) for line, name in own(path) if (PACKAGE / name.split(".")[0]).exists())
        return ((line, name) for line, name in packages if floor_of(name) > own_floor)

    assert_none(offenders((path for path in modules() if path != PACKAGE / "__init__.py"), higher))


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


def test_contributing_page_lists_the_floors() -> None:
    page = (SERVICES.parent / "CONTRIBUTING.md").read_text()
    shown = [re.findall(r"`([^`]+)`", row) for row in re.findall(r"^\| \d+ \| (.*?) \|", page, re.MULTILINE)]
    listed = [{name.removesuffix(".py").replace("/", ".") for name in row} for row in shown]
    assert listed == [{re.sub(r"^stages\..*", "stages", entry) for entry in floor} for floor in FLOORS]


def not_in(path: Path, *allowed: str) -> Names:
    """Yield the imports of other libraries than these and of modules for I/O or random numbers."""
    for line, name in imports(path):
        if not inside(name, "skewless", *allowed) or inside(name, *IMPURE_PARTS):
            yield line, name


def impure_calls(path: Path) -> Names:
    banned = {"open", "print", "input", "exec", "eval", "__import__"}
    yield from ((line, name) for line, name in syntax(path).names if name in banned)
    methods = {"random", "fromfile", "tofile", "memmap"}
    yield from ((line, name) for line, name in syntax(path).attributes if name in methods)


def file_mappings(path: Path) -> Names:
    """Yield the calls of mmap that map a file. Without one it provides memory."""
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "mmap.mmap" and ast.unparse(call.args[0]) != "-1":
            yield call.lineno, "mmap.mmap"


def test_algorithm_imports_only_pure_libraries_and_the_ground_floor() -> None:
    assert_none(offenders(modules("algorithms"), lambda path: not_in(path, *PURE_LIBRARIES)))


def test_algorithm_calls_nothing_that_reads_writes_or_draws() -> None:
    def files(path: Path) -> Names:
        return ((line, name) for line, name in syntax(path).attributes if name in {"load", "save"})

    assert_none(
        offenders(modules("algorithms"), lambda path: (*impure_calls(path), *files(path), *file_mappings(path)))
    )


def step_modules() -> list[Path]:
    return [*modules("stages", "*step.py"), PACKAGE / "stages" / "observer" / "run_statistics.py"]


def test_step_imports_only_pure_parts_and_its_own_folder() -> None:
    def impure(path: Path) -> Names:
        allowed = (*STEP_FLOORS, f"stages.{path.parent.name}")
        for line, name in own(path):
            if not inside(name, *allowed) or name.split(".")[-1] == "builder":
                yield line, name
        yield from not_in(path, *STEP_LIBRARIES)
        yield from impure_calls(path)

    assert_none(offenders([*step_modules(), PACKAGE / "parsing" / "validation.py"], impure))


def test_wire_module_is_pure() -> None:
    """`columns.py` alone reads and writes Arrow streams, in memory."""

    def impure(path: Path) -> Names:
        others = ((line, name) for line, name in imports(path) if not inside(name, "skewless", *STEP_LIBRARIES))
        return (*others, *impure_calls(path))

    assert_none(offenders((path for path in modules("wire") if path.name != "columns.py"), impure))


def test_stage_of_the_topology_has_the_files_of_a_stage() -> None:
    missing = {folder: STAGE_FILES - {path.stem for path in modules(f"stages/{folder}")} for folder in STAGE_FOLDERS}
    assert_none(f"stages/{folder}: no {file}.py" for folder, files in missing.items() for file in sorted(files))


def test_stage_imports_no_other_stage() -> None:
    def other(path: Path) -> Names:
        others = [f"stages.{stage}" for stage in STAGE_FOLDERS if stage != path.parent.name]
        return ((line, name) for line, name in own(path) if inside(name, *others))

    assert_none(offenders((path for path in modules("stages") if path.parent.name != "stages"), other))


AMBIGUOUS = {"left", "right", "join"}
"""Stages with the name of something else: sides, topics, and a section. They count next to a word with `stage`."""

DECISIONS = {
    "cli/commands/init.py": "a key of a report",
    "cli/main.py": "commands of the same name",
    "lab/demo/demo_plan.py": "sections of settings",
    "lab/demo/live_comparison.py": "columns",
    "lab/inspection/inspector.py": "sections of settings",
    "lab/inspection/pipeline_file.py": "sections of settings",
    "asyncapi/document.py": "sections of settings",
    "algorithms/partials.py": "columns",
    "config/pipeline_settings.py": "sections of settings",
    "config/topic_plan.py": "kinds of numbers of partitions",
    "operations/topic_sizes.py": "sections of settings",
    "spark/key_statistics.py": "columns",
    "spark/run_records.py": "columns",
    "spark/stream_start.py": "sections of settings",
    "spark/topic_rows.py": "columns",
    "spark/report/planning_report.py": "a row of a table",
    "wire/partials.py": "columns",
}
"""Files in which something else has the name of a stage."""


def decisions_by_stage(path: Path) -> Names:
    """Yield the comparisons, cases and keys with the name of a stage."""
    names = {row.name for row in topology.STAGES}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Compare(left=left, comparators=comparators):
                parts: list[ast.AST] = [left, *comparators]
            case ast.MatchValue(value=value):
                parts = [value]
            case ast.Dict(keys=keys):
                parts = [key for key in keys if key is not None]
            case _:
                continue
        texts = [each.value for part in parts for each in ast.walk(part) if isinstance(each, ast.Constant)]
        is_about_stages = "stage" in ast.unparse(node)
        found = [text for text in texts if text in names and (is_about_stages or text not in AMBIGUOUS)]
        yield from ((getattr(node, "lineno", 0), f"decides by {text!r}") for text in found)


def test_module_decides_by_the_name_of_a_stage_only_in_the_topology_and_in_its_folder() -> None:
    outside = [path for path in modules() if not show(path).startswith(("stages/", "topology.py"))]
    assert_none(offenders((path for path in outside if show(path) not in DECISIONS), decisions_by_stage))
    assert_none(file for file in DECISIONS if not any(decisions_by_stage(PACKAGE / file)))


def test_module_outside_the_clients_and_engine_does_not_import_confluent_kafka() -> None:
    inside_of = ("kafka/", "engine/", "schema_registry/")  # the package also has the client of the registry
    outside = (path for path in modules() if not show(path).startswith(inside_of))
    assert_none(offenders(outside, lambda path: (each for each in imports(path) if inside(each[1], "confluent_kafka"))))


def test_spark_module_of_recorded_data_imports_no_running_part_of_the_stream() -> None:
    def running(path: Path) -> Names:
        return ((line, name) for line, name in own(path) if inside(name, "engine", "stages", "service"))

    # A streaming query runs the steps of the stages, and the daemon imports their modules for it.
    recorded = (path for path in modules("spark") if not path.name.startswith(("stream_", "python_daemon")))
    assert_none(offenders(recorded, running))


def test_module_outside_cli_api_and_demo_does_not_import_spark() -> None:
    def spark(path: Path) -> Names:
        return ((line, name) for line, name in imports(path) if inside(name, "pyspark", "skewless.spark"))

    assert_none(
        offenders(
            (path for path in modules() if not show(path).startswith(("spark/", "api/", "cli/", "lab/demo/"))), spark
        )
    )


def test_import_parser_relative_import_is_resolved(tmp_path: Path) -> None:
    module = tmp_path / "skewless" / "router" / "step.py"
    module.parent.mkdir(parents=True)
    module.write_text("from ..worker import step\nfrom . import settings\nimport os.path\n", encoding="utf-8")
    names = {name for _, name in imports(module, tmp_path)}
    assert {"skewless.worker.step", "skewless.router.settings", "os.path"} <= names

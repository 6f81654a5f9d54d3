"""Rules about files of the repository: each Python file is parsed once per process, and a rule lists all offenders."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.docs_blocks import ROOT

PACKAGE = ROOT / "services" / "skewless"


class Import(NamedTuple):
    """An import. `import a.b` has no names. `level` is the number of leading dots."""

    line: int
    module: str
    names: tuple[str, ...]
    level: int


class Syntax(NamedTuple):
    """What rules read in a file: each text or name with its line."""

    docstring: str
    imports: list[Import]
    names: list[tuple[int, str]]
    attributes: list[tuple[int, str]]
    strings: list[tuple[int, str]]


@cache
def syntax(path: Path) -> Syntax:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = Syntax(ast.get_docstring(tree) or "", [], [], [], [])
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                found.imports.extend(Import(node.lineno, alias.name, (), 0) for alias in node.names)
            case ast.ImportFrom():
                names = tuple(alias.name for alias in node.names)
                found.imports.append(Import(node.lineno, node.module or "", names, node.level))
            case ast.Name():
                found.names.append((node.lineno, node.id))
            case ast.Attribute():
                found.attributes.append((node.lineno, node.attr))
            case ast.Constant(value=str(text)):
                found.strings.append((node.lineno, text))
    return found


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT).as_posix()}:{line}"


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def problem_of(where: str, check: Callable[[], object]) -> Iterator[str]:
    """Yield the error of a check, if it fails. The message of an assertion is enough, without its expression."""
    try:
        check()
    except Exception as error:  # noqa: BLE001 - the other checks must run
        message = str(error).partition("\nassert ")[0]
        yield f"{where}: {message or type(error).__name__}"


def assert_none(offenders: Iterable[str]) -> None:
    """Fail with all offenders, one a line. The message of `assert offenders == []` ends after the first ones."""
    __tracebackhide__ = True
    found = list(offenders)
    if found:
        pytest.fail("\n".join(["not as required:", *found]))

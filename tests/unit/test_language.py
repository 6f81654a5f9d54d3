"""The project's text uses the field's standard terms: the words below have a standard term that replaces them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("services", "helm", "dashboards", "deploy", "tests")
OTHER_FOLDERS = ("helm", "deploy", "tests")
OTHER_SUFFIXES = {".yaml", ".yml", ".tpl", ".txt", ".sh", ".gotmpl", ".toml", ""}
"""Files with comments or texts that are neither Python nor documentation, such as templates of the chart."""
GENERATED = {"settings.md", "topics.md", "commands.md", "metrics.md", "errors.md", "alerts.md", "comparison.md"}

WORDS = {
    r"told": "reported, emitted",
    r"tells": "reports, returns",
    r"mend(?:s|ed)?": "repair, recover",
    r"parted": "separated",
    r"anew": "again",
    r"beside": "next to, with",
    r"for ever": "without end",
    r"in good order": "cleanly",
    r"goes on|go on": "continues",
    r"comes? of": "results from",
    r"twins?": "duplicate instance",
    r"former self": "previous incarnation",
    r"nobody|somebody|whoever|anybody": "the actor: consumer, producer, user",
    r"(?<!there )(?:is|are) no(?= [a-z])(?! longer| more)": "is not a",
    r"stands? behind": "is stored with",
    r"bears?": "tolerates, capacity",
    r"dear(?:er)?": "expensive",
    r"fullest": "most loaded",
    r"outbox": "producer",
    r"rewinds?": "abort and reset",
    r"hears?|heard": "receives",
}
"""Pattern -> what to write instead."""
NAMES = {
    "told": "reported, emitted",
    "tell": "report, write",
    "tells": "reports",
    "said": "output, message",
    "mark": "watermark",
    "marks": "watermarks",
    "twin": "duplicate",
    "twins": "duplicates",
    "anew": "again",
    "nobody": "the actor",
    "outbox": "producer",
    "rewind": "abort",
    "crew": "process group",
    "world": "context",
    "stand": "harness",
    "fullest": "most loaded",
    "heard": "received",
}
"""Word of an identifier -> what to write instead."""
PATTERN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
QUESTION = re.compile(r"(?:What|How|Whether|Where|Which|Who|When)\b")


def sources() -> list[Path]:
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in files if path != Path(__file__))


def pages() -> list[Path]:
    docs = [path for path in (ROOT / "docs").rglob("*.md") if path.name not in GENERATED]
    return sorted([ROOT / "README.md", *docs])


def others() -> list[Path]:
    """Return the text files that are neither Python nor documentation."""
    files = (path for folder in OTHER_FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    return sorted(path for path in files if path.suffix in OTHER_SUFFIXES)


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each identifier, without `pytest.mark` and byte order marks."""
    previous: list[str] = ["", ""]
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.NAME and previous != ["pytest", "."]:
            yield token.start[0], token.string.replace("byte_order_mark", "bom")
        previous = [previous[1], token.string]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment and of each string that contains a blank: docstrings and messages."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def show(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sources(), ids=show)
def test_code_text_contains_standard_terms_only(path: Path) -> None:
    assert [f"{line}: {found[0]}" for line, text in texts(path) for found in PATTERN.finditer(text)] == []


@pytest.mark.parametrize("path", [path for path in sources() if "services" not in path.parts], ids=show)
def test_code_identifiers_contain_standard_terms_only(path: Path) -> None:
    words = ((line, name, re.split(r"_|(?<=[a-z])(?=[A-Z])", name)) for line, name in identifiers(path))
    assert [f"{line}: {name}" for line, name, parts in words if NAMES.keys() & {part.lower() for part in parts}] == []


@pytest.mark.parametrize("path", others(), ids=show)
def test_other_file_contains_standard_terms_only(path: Path) -> None:
    assert PATTERN.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sources(), ids=show)
def test_module_docstring_is_not_a_question(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert not QUESTION.match(docstring)


@pytest.mark.parametrize("path", pages(), ids=show)
def test_docs_page_contains_standard_terms_only(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert PATTERN.findall(prose) == []

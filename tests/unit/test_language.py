"""The project's text uses the field's standard terms: the words below have a standard term that replaces them."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from helpers.docs_blocks import ROOT
from helpers.source_files import assert_none, line_of, place, syntax

FOLDERS = ("services", "helm", "dashboards", "deploy", "docs", "tests")
OTHER_FOLDERS = ("helm", "deploy", "tests")
OTHER_SUFFIXES = {".yaml", ".yml", ".tpl", ".txt", ".sh", ".gotmpl", ".toml", ""}
"""Files with comments or texts that are neither Python nor documentation, such as templates of the chart."""
GENERATED = {"settings.md", "topics.md", "commands.md", "metrics.md", "errors.md", "alerts.md", "comparison.md"}

WORDS = {
    r"told": "reported, emitted",
    r"tells": "reports, returns",
    r"mend(?:s|ed)?": "repair, recover",
    r"twins?": "duplicate instance",
    r"nobody|somebody|whoever|anybody": "the actor: consumer, producer, user",
    r"outbox": "producer",
    r"rewinds?": "abort and reset",
    r"hears?|heard": "receives",
}
"""Pattern -> what to write instead."""
NAMES = {
    "told": "reported, emitted",
    "tell": "report, write",
    "tells": "reports",
    "mark": "watermark",
    "marks": "watermarks",
    "twin": "duplicate",
    "twins": "duplicates",
    "outbox": "producer",
    "rewind": "abort",
    "crew": "process group",
    "world": "context",
    "stand": "harness",
    "heard": "received",
}
"""Word of an identifier -> what to write instead."""
OTHER_WORDS = re.compile("byte_order_mark|start_mark")
"""Names of the field and of PyYAML that contain a refused word."""
PATTERN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
QUESTION = re.compile(r"(?:What|How|Whether|Where|Which|Who|When)\b")


class Tokens(NamedTuple):
    """Comments and identifiers of a file, each with its line. Names of pytest and byte order marks are left out."""

    comments: list[tuple[int, str]]
    identifiers: list[tuple[int, str]]


@cache
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


@cache
def tokens(path: Path) -> Tokens:
    found = Tokens([], [])
    previous: list[str] = ["", ""]
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            found.comments.append((token.start[0], token.string))
        elif token.type == tokenize.NAME and previous != ["pytest", "."] and "marks=pytest.mark" not in token.line:
            found.identifiers.append((token.start[0], OTHER_WORDS.sub("", token.string)))
        previous = [previous[1], token.string]
    return found


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment and of each string that contains a blank: docstrings and messages."""
    yield from tokens(path).comments
    yield from ((line, text) for line, text in syntax(path).strings if " " in text)


def words_of(name: str) -> set[str]:
    return {part.lower() for part in re.split(r"_|(?<=[a-z])(?=[A-Z])", name)}


def words_in(path: Path, text: str, first: int = 1) -> Iterator[str]:
    """Yield place and word for each of the words in a text that begins at this line."""
    for found in PATTERN.finditer(text):
        yield f"{place(path, first - 1 + line_of(text, found.start()))}: {found[0]}"


def test_code_text_contains_standard_terms_only() -> None:
    assert_none(word for path in sources() for line, text in texts(path) for word in words_in(path, text, line))


def test_code_identifiers_contain_standard_terms_only() -> None:
    outside = [path for path in sources() if "services" not in path.parts]
    names = ((path, line, name) for path in outside for line, name in tokens(path).identifiers)
    assert_none(f"{place(path, line)}: {name}" for path, line, name in names if NAMES.keys() & words_of(name))


def test_other_file_contains_standard_terms_only() -> None:
    assert_none(word for path in others() for word in words_in(path, path.read_text(encoding="utf-8")))


def test_module_docstring_is_not_a_question() -> None:
    docstrings = ((path, syntax(path).docstring) for path in sources())
    assert_none(f"{place(path, 1)}: {text.splitlines()[0]}" for path, text in docstrings if QUESTION.match(text))


def prose(page: Path) -> str:
    """Return a page without its code, with the same numbers of lines."""
    return CODE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))


def test_docs_page_contains_standard_terms_only() -> None:
    assert_none(word for page in pages() for word in words_in(page, prose(page)))

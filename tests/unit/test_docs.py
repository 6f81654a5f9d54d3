"""The documentation is correct: its examples are generated from the code or compared with it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from docs.generate import reference_pages
from docs.generate.examples import WITH_VALUES
from helpers.docs_blocks import PAGES, ROOT, Block, blocks
from helpers.source_files import assert_none, line_of, place, problem_of
from skewless.algorithms.aggregates import AGGREGATES, ResultField
from skewless.algorithms.grouping import GROUPINGS
from skewless.algorithms.value_type import ValueType
from skewless.cli import main
from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.datasets import DATASETS
from skewless.parsing.envelopes import ENVELOPES
from skewless.parsing.formats import BUILT_IN
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import RecordColumns
from skewless.sql.dialects import DATABASES
from skewless.testing import cases
from skewless.version import VERSION
from skewless.wire.aggregates import aggregate_type, top_type
from skewless.wire.distribution import TickDistribution
from skewless.wire.hot_keys import HotKeyChange
from skewless.wire.joined import JoinedRecord, JoinLateRecord, UnmatchedRecord
from skewless.wire.tuples import LateTuple, TupleFormat, TupleRecord

NOW_MS = 1_800_000_000_000
EXAMPLES = ROOT / "deploy" / "examples"
BLOCKS = [block for page in PAGES for block in blocks(page)]
CASES = [block for block in BLOCKS if block.name == "cases.yaml"]
PIPELINES = [block for block in BLOCKS if block.language == "yaml" and block not in CASES]
FACTS = [block for block in BLOCKS if block.language == "json"]
COMMAND = re.compile(r"(?:^|[\s(])(?P<program>skewless|make) (?P<arguments>[a-z](?:'[^']*'|[^)|;&#>'])*)")
INLINE = re.compile(r"`(skewless|make)\s([a-z][^`]*)`")
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#]*)(?:#(?P<anchor>[^)]*))?\)")


def commands() -> Iterator[tuple[str, str, str]]:
    """Yield every command line in a block: its place, the program, its arguments."""
    for block in BLOCKS:
        for line in block.text.splitlines():
            found = None if line.startswith("Usage:") else COMMAND.search(line)
            if found and block.language in {"sh", "text"}:
                yield str(block), found["program"], found["arguments"].strip()


def find(words: list[str]) -> tuple[click.Command, list[str]]:
    """Find a command, and its remaining words."""
    command: click.Command = main.main
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"there is no command {' '.join(words)}"
        command, words = found, words[1:]
    return command, words


@cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def load(block: Block, folder: Path) -> PipelineSettings:
    file = folder / "pipeline.yaml"
    file.write_text(block.text)
    return loader.load(file, {})


def test_reference_pages_equal_the_generated_text(tmp_path: Path) -> None:
    # In a process of its own, because click keeps the help options of a command that another test has run.
    command = [sys.executable, "-m", "docs.generate", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": "services"})
    folder = ROOT / "docs" / "reference"
    made = [(page.name, page.read_text()) for page in sorted(tmp_path.iterdir())]
    assert len(made) > 5
    assert_none(f"docs/reference/{name}: run `make docs`" for name, text in made if (folder / name).read_text() != text)


def test_reference_folder_holds_generated_or_listed_pages_only() -> None:
    written = {
        "comparison.md",
        "datasets.md",
        "published-experiment.md",
        "alerts.md",
        "glossary.md",
        "growth.md",
        "kafka-versions.md",
    }
    assert {page.name for page in (ROOT / "docs" / "reference").iterdir()} <= reference_pages.pages().keys() | written


def test_docs_commands_in_blocks_exist_with_their_options() -> None:
    def check(program: str, arguments: str) -> None:
        words = shlex.split(arguments)
        if program == "make":
            assert words[0] in targets(), f"make has no target {words[0]}"
            return
        command, others = find(words)
        with command.make_context("skewless", others):
            pass  # options such as --no-progress have effect until the context is closed

    assert_none(
        problem
        for where, program, arguments in commands()
        for problem in problem_of(f"{where}: {program} {arguments}", partial(check, program, arguments))
    )


def test_docs_commands_in_sentences_exist_with_their_options() -> None:
    def check(program: str, arguments: str) -> None:
        words = arguments.split()
        if program == "make":
            assert words[0] in targets(), f"make has no target {words[0]}"
            return
        command, others = find(words)
        known = {option for parameter in command.params for option in parameter.opts}
        unknown = {word for word in others if word.startswith("-")} - known
        assert not unknown, f"there is no option {', '.join(unknown)}"

    assert_none(
        problem
        for page in PAGES
        for found in INLINE.finditer(page.read_text())
        for problem in problem_of(
            f"{place(page, line_of(found.string, found.start()))}: {found[0]}", partial(check, *found.groups())
        )
    )


def test_docs_pipelines_are_valid(tmp_path: Path) -> None:
    assert_none(problem for block in PIPELINES for problem in problem_of(str(block), partial(load, block, tmp_path)))


def test_docs_test_cases_pass_with_the_pipeline_of_their_page(tmp_path: Path) -> None:
    def run(block: Block) -> None:
        pipeline = next(each for each in PIPELINES if each.page == block.page)
        file = tmp_path / block.name
        file.write_text(block.text)
        settings = load(pipeline, tmp_path)
        read = cases.read_cases(file, settings)
        assert {case.name: found for case in read if (found := cases.check(settings, case, NOW_MS))} == {}

    assert CASES
    assert_none(problem for block in CASES for problem in problem_of(str(block), partial(run, block)))


def test_docs_pipeline_with_the_name_of_an_example_equals_it(tmp_path: Path) -> None:
    named = [block for block in PIPELINES if (EXAMPLES / block.name).is_file()]
    assert named
    assert_none(
        f"{block}: differs from deploy/examples/{block.name}"
        for block in named
        if load(block, tmp_path) != loader.load(EXAMPLES / block.name, {})
    )


def type_of(name: str, entry: dict[str, Any]) -> type[msgspec.Struct]:
    if name in {"aggregates", "top"}:
        value = ValueType(decimals=2)
        results = (ResultField(kind.result_name(value.name), kind, value) for kind in AGGREGATES.values())
        shown = [result for result in results if result.name in entry]
        return top_type(shown) if name == "top" else aggregate_type(shown)
    types: dict[str, type[msgspec.Struct]] = {
        "late": LateTuple,
        "distribution": TickDistribution,
        "hot-keys": HotKeyChange,
        "tuple": TupleRecord,
        "tuple-with-values": TupleFormat(WITH_VALUES.values).record_type,
        "joined": JoinedRecord,
        "unmatched-left": UnmatchedRecord,
        "unmatched-right": UnmatchedRecord,
        "join-late": JoinLateRecord,
    }
    return types[name]


def test_docs_records_match_their_types() -> None:
    def check(name: str, line: str) -> None:
        entry = msgspec.json.decode(line)
        kind = type_of(name, entry)
        msgspec.json.decode(line, type=kind)
        assert set(entry) == {field.encode_name for field in msgspec.structs.fields(kind)}, line

    assert_none(
        problem
        for block in FACTS
        if block.name != "source"
        for line in block.text.splitlines()
        for problem in problem_of(str(block), partial(check, block.name, line))
    )


def test_docs_source_records_can_be_parsed_by_a_pipeline_of_their_page(tmp_path: Path) -> None:
    def parsed(block: Block) -> bool:
        formats = [
            RecordParser(load(each, tmp_path).splitter)
            for each in PIPELINES
            if each.page == block.page and "format: json" in each.text
        ]
        values = [line.encode() for line in block.text.splitlines()]
        columns = RecordColumns.of_values(values, np.zeros(len(values), dtype=np.int64))
        batches = [each.parse(columns) for each in formats]
        return any(len(batch.keys) >= len(values) and not batch.invalid for batch in batches)

    blocks_of_records = [block for block in FACTS if block.name == "source"]
    assert_none(f"{block}: no pipeline of the page parses it" for block in blocks_of_records if not parsed(block))


def test_docs_page_of_a_registry_names_each_entry() -> None:
    pages: dict[str, Iterable[str]] = {
        "explanation/groupings.md": GROUPINGS,
        "how-to/choose-aggregates.md": AGGREGATES,
        "how-to/produce-data-sets.md": DATASETS,
        "how-to/read-any-topic.md": BUILT_IN,
        "how-to/read-envelopes.md": ENVELOPES,
        "how-to/sql.md": DATABASES,
    }
    texts = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages}
    assert_none(
        f"docs/{page}: {name} is missing"
        for page, names in pages.items()
        for name in names
        if not re.search(rf"\b{re.escape(name)}\b", texts[page])
    )


def test_docs_links_resolve_to_existing_targets() -> None:
    assert_none(link for page in PAGES for link in broken_links(page))


def broken_links(page: Path) -> Iterator[str]:
    text = CODE.sub("", page.read_text())
    for found in LINK.finditer(text):
        target = page.parent / found["target"] if found["target"] else page
        if not target.exists() or (found["anchor"] and found["anchor"] not in anchors(target)):
            yield f"{place(page, line_of(text, found.start()))}: {found[0]}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}


def test_version_is_the_same_in_the_package_the_readme_and_the_changelog() -> None:
    assert f"This is version {VERSION}, " in (ROOT / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    is_released = "-dev" not in VERSION
    assert headings[0][0] == VERSION
    assert (headings[0][1] != "not released yet") == is_released

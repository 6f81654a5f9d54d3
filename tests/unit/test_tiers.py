"""`make test` and `make test-rest` divide the tests, and `make test` has some of every folder."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from helpers.docs_blocks import ROOT
from helpers.source_files import assert_none
from helpers.tiers import COLLECTED


def markers_of_target(target: str) -> str:
    """Return the expression of markers that a target of the Makefile runs."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (found,) = re.findall(rf'^{target}: .*\n\t@\$\(PYTEST\) -m "([^"]+)"', makefile, re.MULTILINE)
    return str(found)


def has(item: pytest.Item, expression: str) -> bool:
    markers = {name: item.get_closest_marker(name) is not None for name in ("thorough", "hypothesis")}
    return bool(eval(expression, {}, markers))  # noqa: S307 - pytest's expressions are Python's; this one is our own


def test_tiers_each_test_is_in_one_and_each_law_in_both(request: pytest.FixtureRequest) -> None:
    first, rest = markers_of_target("test"), markers_of_target("test-rest")
    wrong = []
    for item in request.config.stash[COLLECTED]:
        tiers = [has(item, expression) for expression in (first, rest)]
        is_law = item.get_closest_marker("hypothesis") and not item.get_closest_marker("thorough")
        if tiers != [True, True] if is_law else sum(tiers) != 1:
            wrong.append(item.nodeid)
    assert_none(wrong)


def test_tiers_profiles_of_the_laws_divide_the_examples() -> None:
    examples = {name: settings.get_profile(name).max_examples for name in ("quarter", "rest", "full")}
    assert examples["quarter"] + examples["rest"] == examples["full"]


def test_tiers_make_test_has_tests_of_every_folder(request: pytest.FixtureRequest) -> None:
    first, files, chosen = markers_of_target("test"), defaultdict[Path, set[Path]](set), set[Path]()
    for item in request.config.stash[COLLECTED]:
        files[item.path.parent].add(item.path)
        if has(item, first):
            chosen.add(item.path.parent)
    whole = {folder for folder, of_folder in files.items() if of_folder == set(folder.glob("test_*.py"))}
    assert_none(os.path.relpath(folder, ROOT) for folder in whole - chosen)

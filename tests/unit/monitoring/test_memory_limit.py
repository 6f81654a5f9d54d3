from __future__ import annotations

import os
from pathlib import Path

import pytest

from skewless.monitoring.memory_limit import memory_limit

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("content", "limit"), [("104857600\n", 104857600), ("max\n", MACHINE), (f"{2**63 - 4096}\n", MACHINE)]
)
def test_memory_limit_is_that_of_the_container_or_of_the_machine(tmp_path: Path, content: str, limit: int) -> None:
    (file := tmp_path / "memory.max").write_text(content)
    assert memory_limit((tmp_path / "missing", file)) == limit


def test_memory_limit_without_a_container_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert memory_limit((tmp_path / "missing",)) == MACHINE

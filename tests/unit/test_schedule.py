"""Files of tests run on the workers that have their server or spare time."""

from __future__ import annotations

from helpers.docs_blocks import ROOT
from helpers.schedule import WORKERS, rank
from helpers.source_files import assert_none


def test_workers_of_files_each_has_tests() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py")]
    assert_none(beginning for beginning in WORKERS if not any(file.startswith(beginning) for file in files))


def test_rank_worker_takes_its_files_first_and_of_others_last() -> None:
    files = ["tests/integration/registry/test_client.py", "tests/chart/test_made.py", "tests/spark/test_join.py"]
    assert sorted(files, key=lambda file: rank(file, "gw0")) == [files[2], files[1], files[0]]
    assert sorted(files, key=lambda file: rank(file, "gw2")) == files


def test_rank_of_a_worker_without_files_begins_with_files_of_no_worker() -> None:
    assert rank("tests/chart/test_made.py", "gw5") < rank("tests/spark/test_join.py", "gw5")


def test_rank_worker_of_units_begins_with_them() -> None:
    files = ["tests/acceptance/test_kills.py", "tests/unit/test_schedule.py"]
    assert sorted(files, key=lambda file: rank(file, "gw4")) == files[::-1]

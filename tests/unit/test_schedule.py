"""Files of tests that need a server run on the workers that have it."""

from __future__ import annotations

from helpers.docs_blocks import ROOT
from helpers.schedule import WORKERS, rank
from helpers.source_files import assert_none


def test_workers_of_folders_each_folder_has_tests() -> None:
    assert_none(folder for folder in WORKERS if not [*(ROOT / folder).glob("test_*.py")])


def test_rank_worker_takes_files_of_its_server_first_and_of_others_last() -> None:
    files = ["tests/integration/registry/test_client.py", "tests/laws/test_join.py", "tests/spark/test_join.py"]
    assert sorted(files, key=lambda file: rank(file, "gw0")) == [files[2], files[1], files[0]]
    assert sorted(files, key=lambda file: rank(file, "gw2")) == files


def test_rank_of_a_worker_without_servers_begins_with_files_without_one() -> None:
    assert rank("tests/laws/test_join.py", "gw3") < rank("tests/spark/test_join.py", "gw3")

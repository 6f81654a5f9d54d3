"""OpenTransactions: whose transactions are aborted, and by whom."""

from __future__ import annotations

from typing import Any, cast

import pytest

from laws.model_clients import in_background
from skewless.engine import open_transactions
from skewless.engine.open_transactions import OpenTransactions
from skewless.errors import UnavailableError


class Member:
    """Its output, and its view of the group."""

    def __init__(self, identity: str) -> None:
        self.group_instance_id = identity
        self.group: set[str] | None = set()
        self.aborted: list[str] = []
        self.open_transactions = OpenTransactions(cast("Any", self), cast("Any", self))

    def instances(self) -> set[str]:
        if self.group is None:
            raise UnavailableError("no answer")
        return self.group

    def abort_open(self, identity: str) -> None:
        self.aborted.append(identity)

    def assigned(self, *group: str) -> list[str]:
        """Assign partitions while the group has these members; returns whose transactions were aborted until now."""
        self.group = set(group)
        self.open_transactions.abort_of_departed()
        return self.aborted


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "in_background", in_background)


def test_open_transactions_of_a_departed_member_are_aborted_once_by_the_first_of_the_others() -> None:
    members = [Member(f"g-{number}") for number in range(3)]
    for member in members:
        assert member.assigned("g-0", "g-1", "g-2") == []
    assert [member.assigned("g-1", "g-2") for member in members[1:]] == [["g-0"], []]
    assert [member.assigned("g-1", "g-2") for member in members[1:]] == [["g-0"], []]


def test_open_transactions_group_does_not_answer_are_aborted_at_the_next_assignment() -> None:
    member = Member("g-0")
    member.assigned("g-0", "g-1")
    member.group = None
    member.open_transactions.abort_of_departed()
    assert member.aborted == []
    assert member.assigned("g-0") == ["g-1"]


def test_open_transactions_process_that_is_no_member_aborts_nothing() -> None:
    member = Member("g-0")
    member.assigned("g-0", "g-1")
    assert member.assigned() == []

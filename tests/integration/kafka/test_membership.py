"""GroupMembership with a real coordinator."""

from __future__ import annotations

from skewless.kafka.consumer.membership import GroupMembership


def test_membership_of_a_group_that_never_existed_has_no_member(broker: str) -> None:
    unknown = GroupMembership({"bootstrap.servers": broker}, "never-joined", "never-joined-0", "absent")
    assert unknown.member_id() is None

"""OpenTransactions: aborts the transactions that departed members of a group have left open.

A process that is killed leaves its transaction open. As long as it is open, no consumer reads a later record of its
partitions, and the group does not tell which offsets it has committed. A process that comes back aborts it when its
producer starts. For one that is gone for good, the broker would do so after `transport.transaction_timeout_s`.
"""

from __future__ import annotations

import logging

from skewless.engine.output import Output
from skewless.kafka.call_with_timeout import in_background
from skewless.kafka.consumer.membership import GroupMembership

log = logging.getLogger(__name__)


class OpenTransactions:
    """The transactions of the other members of the group. Nothing depends on the success of its requests."""

    def __init__(self, output: Output, membership: GroupMembership) -> None:
        self._output = output
        self._membership = membership
        self._present: set[str] = set()
        """Members of the group at the last assignment."""

    def abort_of_departed(self) -> None:
        """Begin to abort the transactions of the members that the group has lost since the last assignment."""
        in_background(self._abort_of_departed)

    def _abort_of_departed(self) -> None:
        present = self._membership.instances()
        departed, self._present = self._present - present, present
        # One member does it for all. For a member that has stopped cleanly there is nothing to abort.
        if departed and min(present, default="") == self._membership.group_instance_id:
            log.info("aborting the transactions of members that have left: %s", ", ".join(sorted(departed)))
            for identity in departed:
                self._output.abort_open(identity)

"""Table of the exit codes that faults justify. A process that ends by itself for any other reason is an error.

No fault justifies exit code 1 (a check failed), 2 (the settings are correct) or 70 (a bug). A stage that has started
waits for an unreachable broker or network, so neither justifies an end, unless the process stops. A process that cannot
reach a broker at its start ends with 3 after `kafka.connect_timeout_s`.
"""

from __future__ import annotations

from collections import Counter

FENCED = 3
NO_BROKER_AT_START = "starts without a broker"
OUTAGE_WITH_DUPLICATE = "outages with a duplicate"
FROZEN_AT_STOP = "stops of frozen processes"
NO_BROKER_AT_STOP = "stops without a broker"
JUSTIFIED: dict[str, tuple[int, int]] = {
    "duplicates": (FENCED, 2),
    "zombies": (FENCED, 1),
    OUTAGE_WITH_DUPLICATE: (FENCED, 1),
    NO_BROKER_AT_START: (FENCED, 1),
    FROZEN_AT_STOP: (FENCED, 1),
    NO_BROKER_AT_STOP: (FENCED, 1),
}
"""Fault, by its name in the journal -> exit code that it justifies, and the number of such ends per fault.

Of two processes with one name, the one that joined the group first ends. It is restarted, and then the second one
ends. After an outage that is longer than the session, both join again, and the first one of them ends, so each outage
justifies one more end. A zombie is fenced by the process that replaced it in the group, and only the zombie may end. A
process that is frozen when it is asked to stop reports when it resumes that its group has refused its last commit. A
process whose broker goes away while it stops reports that the outcome of its last commit is unknown.
"""


def allowed(dealt: Counter[str]) -> Counter[int]:
    """Return the allowed number of ends by exit code, after the faults that occurred."""
    most: Counter[int] = Counter()
    for fault, (code, times) in JUSTIFIED.items():
        most[code] += times * dealt[fault]
    return most


def unjustified(ends: Counter[int], dealt: Counter[str]) -> list[str]:
    """List the exit codes that occurred more often than the faults justify."""
    most = allowed(dealt)
    return [
        f"{count} processes ended with exit code {code}, the faults justify {most[code]}"
        for code, count in sorted(ends.items())
        if count > most[code]
    ]

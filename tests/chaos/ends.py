"""Table of the exit codes that faults justify. A process that ends by itself for any other reason is an error.

No fault justifies exit code 1 (a check failed), 2 (the settings are right) or 70 (a bug). A broker or network that is
away justifies no end of a stage that has started, because stages wait for it. A process that finds no broker at its
start ends with 3 after `kafka.connect_timeout_s`.
"""

from __future__ import annotations

from collections import Counter

FENCED = 3
NO_BROKER_AT_START = "starts without a broker"
JUSTIFIED: dict[str, tuple[int, int]] = {"twins": (FENCED, 2), "zombies": (FENCED, 1), NO_BROKER_AT_START: (FENCED, 1)}
"""Fault, as the journal counts it -> exit code that it justifies, and how many ends with it each fault may cause.

Of two processes of one name one is fenced and ends. If it is the first one, it is started again and fences the second.
A zombie finds a process of its name at work: it alone must end.
"""


def allowed(dealt: Counter[str]) -> Counter[int]:
    """Return how often each exit code may occur after the faults that were dealt."""
    most: Counter[int] = Counter()
    for fault, (code, times) in JUSTIFIED.items():
        most[code] += times * dealt[fault]
    return most


def unjustified(ends: Counter[int], dealt: Counter[str]) -> list[str]:
    """Say which exit codes occurred more often than the faults justify."""
    most = allowed(dealt)
    return [
        f"{count} processes ended with exit code {code}, the faults justify {most[code]}"
        for code, count in sorted(ends.items())
        if count > most[code]
    ]

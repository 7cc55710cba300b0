"""What the machine itself holds up: how often a process that wants nothing but to run is not let run.

A call in the store's slow log is timed by the clock on the wall, so on a shared machine some are long that
did little. Beside them belongs how often that happens to a process that does nothing at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def stalls_per_s(longer_than_s: float, seconds: float, clock: Clock = time.perf_counter) -> float:
    """Pauses longer than so much between two looks at the clock, per second of looking."""
    began_at = last_at = clock()
    stalls = 0
    while last_at - began_at < seconds:
        now_at = clock()
        stalls += now_at - last_at > longer_than_s
        last_at = now_at
    return stalls / (last_at - began_at)

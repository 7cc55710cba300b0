"""When slots fall: bandwidth over time, and the grid of slots that follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SAME = 1e-9  # instants closer than this (units) are one


@dataclass(frozen=True, slots=True)
class Schedule:
    """Bandwidth as steps (from when, crawls per unit), and when it all ends."""

    steps: tuple[tuple[float, float], ...]
    end: float

    def __post_init__(self) -> None:
        times = [at for at, _ in self.steps]
        if not times or times[0] != 0 or times != sorted(set(times)) or times[-1] >= self.end:
            raise ValueError("steps must start at 0, ascend, and lie before the end")
        if any(rate <= 0 for _, rate in self.steps):
            raise ValueError("bandwidth must be positive")

    def ticks(self) -> Iterator[tuple[float, float | None]]:
        """(when, None) for a slot; (when, new bandwidth) for a turn of the dial.

        What had passed of the current slot when the dial is turned is carried over in proportion.
        """
        slot_at, old = 0.0, self.steps[0][1]
        bounds = [*self.steps[1:], (self.end, 0.0)]
        for (begin, rate), (end, _) in zip(self.steps, bounds, strict=True):
            yield begin, rate
            base = begin + max(0.0, slot_at - begin) * old / rate
            count, slot_at, old = 0, base, rate
            while slot_at < end - SAME:
                yield slot_at, None
                count += 1
                slot_at = base + count / rate

    @property
    def crawls(self) -> int:
        """How many slots there are, to within one per step."""
        ends = [at for at, _ in self.steps[1:]] + [self.end]
        return round(sum((e - b) * r for (b, r), e in zip(self.steps, ends, strict=True)))


def parse_schedule(bandwidth: float, steps: str, end: float) -> Schedule:
    """A schedule from `"200:150,300:100"`: from unit 200 on 150 crawls per unit, from 300 on 100."""
    parts = [part.split(":") for part in steps.split(",") if part.strip()]
    if any(len(part) != 2 for part in parts):
        raise ValueError("steps look like 200:150,300:100")
    later = tuple((float(at), float(rate)) for at, rate in parts)
    return Schedule(((0.0, bandwidth), *later), end)

"""Metrics of what happens tens of thousands of times a second: the metrics library's own take a lock per
number, and its histogram looks through the buckets one by one. Only for the thread of the event loop.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import cast

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import INF, floatToGoString

_written = cast(Callable[[float], str], floatToGoString)


class Timing:
    """How long things of one kind took."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._created_at = time.time()
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def add_to(self, metric: Metric, labels: dict[str, str]) -> None:
        """The samples, as the metrics library writes those of its histograms."""
        name, totals = metric.name, list(accumulate(self._counts))
        for bound, total in zip((*self._bounds, INF), totals, strict=True):
            metric.add_sample(f"{name}_bucket", {**labels, "le": _written(bound)}, float(total))
        metric.add_sample(f"{name}_count", labels, float(totals[-1]))
        metric.add_sample(f"{name}_sum", labels, self._sum)
        metric.add_sample(f"{name}_created", labels, self._created_at)


class Timings(Collector):
    """Timings told apart by one label."""

    def __init__(self, name: str, documentation: str, label: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._bounds = tuple(bounds)
        self._timings: dict[str, Timing] = {}

    def labels(self, value: str) -> Timing:
        if value not in self._timings:
            self._timings[value] = Timing(self._bounds)
        return self._timings[value]

    def collect(self) -> Iterator[Metric]:
        metric = Metric(self._name, self._documentation, "histogram")
        for value, timing in self._timings.items():
            timing.add_to(metric, {self._label: value})
        yield metric

    def describe(self) -> Iterator[Metric]:
        """Its name, so that no other metric gets it."""
        yield Metric(self._name, self._documentation, "histogram")


class Count(Collector):
    """How often something happened."""

    def __init__(self, name: str, documentation: str) -> None:
        self._name = name
        self._documentation = documentation
        self._created_at = time.time()
        self._total = 0

    def inc(self, amount: int) -> None:
        self._total += amount

    def collect(self) -> Iterator[Metric]:
        name, documentation = self._name, self._documentation
        yield CounterMetricFamily(name, documentation, value=self._total, created=self._created_at)

    describe = collect

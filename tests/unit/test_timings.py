"""Timings and counts are written as the metrics library writes its own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from service.timings import Count, Timings

BOUNDS = (0.0005, 0.1, 1, 30)
SECONDS = st.sampled_from([0.0, 0.0005, 0.1, 1.0, 30.0, 30.1]) | st.floats(0, 100)


@given(seconds=st.lists(st.tuples(st.sampled_from(["/a", '/"b"']), SECONDS)))
def test_the_same_is_written(seconds: list[tuple[str, float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    timings = Timings("x_seconds", "Time.", "route", BOUNDS)
    ours.register(timings)
    histogram = Histogram("x_seconds", "Time.", ["route"], buckets=BOUNDS, registry=theirs)
    for route, value in seconds:
        timings.labels(route).observe(value)
        histogram.labels(route).observe(value)
    assert_the_same(ours, theirs)


@given(amounts=st.lists(st.integers(0, 1000)))
def test_the_same_is_counted(amounts: list[int]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    count = Count("x_total", "Things.")
    ours.register(count)
    counter = Counter("x_total", "Things.", registry=theirs)
    for amount in amounts:
        count.inc(amount)
        counter.inc(amount)
    assert_the_same(ours, theirs)


def assert_the_same(ours: CollectorRegistry, theirs: CollectorRegistry) -> None:
    for write in (generate_latest, generate_openmetrics):
        written = [re.sub(rb"(_created.*) .*", rb"\1", write(registry)) for registry in (ours, theirs)]
        assert written[0] == written[1]


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (Timings("x_seconds", "Time.", "route", BOUNDS), "x_seconds_count"),
        (Count("x_total", "Things."), "x_total"),
    ],
)
def test_its_name_is_taken(metric: Timings | Count, name: str) -> None:
    registry = CollectorRegistry()
    registry.register(metric)
    with pytest.raises(ValueError, match="Duplicated"):
        Counter(name, "Other.", registry=registry)

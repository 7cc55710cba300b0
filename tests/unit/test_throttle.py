"""A worker leaves the server alone for as long as its share asks."""

from __future__ import annotations

import pytest

from workers.throttle import SPARE_S, Throttle


def run(throttle: Throttle, waits: list[float], *, idle_s: float = 0.0) -> float:
    """Make calls one after the other, each as soon as it may be; returns how long all of it took."""
    now = 0.0
    for waited_s in waits:
        now += throttle.pause_s(now)
        throttle.add("call", now, waited_s)
        now += waited_s + idle_s
    return now + throttle.pause_s(now)


def test_calls_take_their_share_of_the_time_and_no_more() -> None:
    took = run(Throttle(0.25), [0.001] * 4000)
    assert 4.0 / (took + SPARE_S) == pytest.approx(0.25, rel=0.01)


def test_time_spent_elsewhere_counts_as_leaving_the_server_alone() -> None:
    assert run(Throttle(0.25), [0.001] * 1000, idle_s=0.004) == pytest.approx(5.0, rel=0.01)


def test_a_long_silence_buys_no_long_run_of_calls() -> None:
    throttle = Throttle(0.25)
    throttle.add("call", 0.0, 0.001)
    late, calls = 1000.0, 0
    while throttle.pause_s(late) == 0:
        throttle.add("call", late, 0.001)
        late += 0.001
        calls += 1
    assert calls * 0.001 <= SPARE_S


def test_waiting_for_others_is_not_held_against_a_call() -> None:
    alone = run(Throttle(0.1), [0.001] * 1000)
    crowded = run(Throttle(0.1), [0.001, 0.003] * 500)
    assert crowded < 1.2 * alone


def test_a_server_that_always_makes_wait_is_left_alone_for_longer() -> None:
    assert run(Throttle(0.25), [0.005] * 1000) > 4 * run(Throttle(0.25), [0.001] * 1000)


def test_kinds_of_calls_are_judged_apart() -> None:
    throttle = Throttle(0.5)
    for at in range(64):
        throttle.add("short", float(at), 0.0001)
    throttle.add("long", 100.0, 0.5)
    assert throttle.pause_s(100.5) == pytest.approx(0.5 - SPARE_S)


def test_calls_side_by_side_take_their_share_of_the_time_and_no_more() -> None:
    """Three callers of one server, which runs a call at a time, each in a millisecond."""
    throttle, calls, now, free_at = Throttle(0.25), 4000, 0.0, 0.0
    under_way: list[tuple[float, float]] = []  # when the answer comes, when it was sent
    for _ in range(calls):
        if len(under_way) == 3:
            now = max(now, under_way[0][0])
        while True:
            for answer_at, sent_at in [call for call in under_way if call[0] <= now]:
                throttle.add("call", sent_at, answer_at - sent_at)
            under_way = [call for call in under_way if call[0] > now]
            if throttle.pause_s(now) == 0:
                break
            now += throttle.pause_s(now)
        free_at = max(free_at, now) + 0.001
        under_way.append((free_at, now))
    assert calls * 0.001 / (free_at + SPARE_S) == pytest.approx(0.25, rel=0.02)

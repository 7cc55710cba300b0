"""Log lines: what is said, and how often."""

from __future__ import annotations

import logging

import pytest

from service.logs import MOST_KINDS, Sparing


def record(at: float, cause: str = "refused", level: int = logging.WARNING) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "freshet.api", "msg": "store_unavailable", "levelno": level})
    made.created, made.cause = at, cause
    return made


def test_troubles_alike_are_told_once_a_second_with_how_many_were_left_out() -> None:
    sparing = Sparing()
    told = [sparing.filter(record(10 + at / 1000)) for at in range(1000)]
    assert told == [True] + [False] * 999
    later = record(11)
    assert sparing.filter(later)
    assert vars(later)["repeats"] == 999
    last = record(13)
    assert sparing.filter(last)
    assert "repeats" not in vars(last)


def test_another_cause_is_told_at_once() -> None:
    sparing = Sparing()
    assert sparing.filter(record(10, "refused"))
    assert sparing.filter(record(10, "timed out"))


def test_the_same_error_is_told_once_and_another_at_once() -> None:
    sparing, told = Sparing(), []
    for error in (ValueError("a"), ValueError("a"), ValueError("b"), KeyError("a")):
        made = record(10)
        made.exc_info = (type(error), error, None)
        told.append(sparing.filter(made))
    assert told == [True, False, True, True]


def test_a_clock_that_steps_back_silences_nothing() -> None:
    sparing = Sparing()
    assert sparing.filter(record(5000))
    assert sparing.filter(record(10))


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_what_is_no_trouble_is_always_told(level: int) -> None:
    sparing = Sparing()
    assert all(sparing.filter(record(10, level=level)) for _ in range(3))


def test_only_so_many_kinds_are_remembered() -> None:
    sparing = Sparing()
    assert all(sparing.filter(record(10, f"cause {at}")) for at in range(MOST_KINDS + 1))
    assert sparing.filter(record(10, "cause 0"))  # forgotten with the others
    assert not sparing.filter(record(10, f"cause {MOST_KINDS}"))

"""Instants are written as the calendar has them, to the millisecond, and read back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.instants import LATEST, parse_instant, render_instant

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(at=st.integers(0, int(LATEST) * 1000))
def test_an_instant_is_written_as_the_calendar_has_it(at: int) -> None:
    expected = (EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds")
    assert render_instant(at / 1000) == expected.replace("+00:00", "Z")
    assert parse_instant(render_instant(at / 1000)) == pytest.approx(at / 1000, abs=1e-6)


@pytest.mark.parametrize(
    ("at", "written"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (951_868_799.9999, "2000-02-29T23:59:59.999Z"),
        (951_868_799.9999999, "2000-03-01T00:00:00.000Z"),
    ],
)
def test_parts_of_a_millisecond_are_cut_off(at: float, written: str) -> None:
    assert render_instant(at) == written

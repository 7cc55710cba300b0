"""Instants as users write and read them: RFC 3339 with milliseconds, UTC; epoch seconds accepted."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from service.errors import SchedulerError

_MINUTES = [f"{at // 60:02}:{at % 60:02}" for at in range(24 * 60)]
_SECONDS = [f":{at:02}" for at in range(60)]
_MILLISECONDS = [f".{at:03}Z" for at in range(1000)]
LATEST = 4_102_444_800.0  # the year 2100: later instants are mistakes


class InvalidInstant(SchedulerError):
    """Not an instant: give RFC 3339 or epoch seconds."""


def render_instant(at: float) -> str:
    return render_ms(at * 1000)


def render_ms(at_ms: float) -> str:
    """An instant as the store has it, in milliseconds; parts of one are cut off, but for rounding errors."""
    minute, milliseconds = divmod(int(at_ms + 0.0005), 60_000)
    return f"{_minute(minute)}{_SECONDS[milliseconds // 1000]}{_MILLISECONDS[milliseconds % 1000]}"


def render_optional(at: float | None) -> str | None:
    return None if at is None else render_instant(at)


@lru_cache(maxsize=65536)
def _minute(at: int) -> str:
    """Slots and expiries share few minutes, and most pages were crawled in the last weeks'."""
    day, minute = divmod(at, 24 * 60)
    return f"{_day(day)}{_MINUTES[minute]}"


@lru_cache(maxsize=4096)
def _day(at: int) -> str:
    """Pages were crawled on few different days."""
    return datetime.fromtimestamp(at * 86400, UTC).strftime("%Y-%m-%dT")


def parse_instant(value: str | float | None) -> float | None:
    """Epoch seconds from RFC 3339, an HTTP date or a number; None stays None."""
    if value is None:
        return None
    at = _from_text(value) if isinstance(value, str) else float(value)
    if not (math.isfinite(at) and 0 <= at <= LATEST):
        raise InvalidInstant("the instant must lie between 1970 and 2100")
    return at


def _from_text(text: str) -> float:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        try:
            parsed = parsedate_to_datetime(text)
        except (ValueError, OverflowError):  # the latter by an offset of years
            raise InvalidInstant() from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return parsed.timestamp()

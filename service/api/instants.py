"""Instants as users write and read them: RFC 3339 with milliseconds, UTC; epoch seconds accepted."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from service.errors import SchedulerError

LATEST = 4_102_444_800.0  # the year 2100: later instants are mistakes


class InvalidInstant(SchedulerError):
    """Not an instant: give RFC 3339 or epoch seconds."""


def render_instant(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
        except ValueError:
            raise InvalidInstant() from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return parsed.timestamp()

"""Logs: one JSON object per line, an event name plus fields; user text is always escaped."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_TELLING = ("cause", "error", "path", "part", "code")  # fields that tell one trouble from another
ALIKE_S = 1.0  # between two lines that are alike
MOST_KINDS = 1000  # remembered


class JsonFormatter(logging.Formatter):
    """`{"at", "level", "logger", "event", …fields}`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        entry.update({k: v for k, v in vars(record).items() if k not in _STANDARD})
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class Sparing(logging.Filter):
    """Warnings and errors that are alike are written once a second: a store that is away would else cost a
    line per request. `repeats`, in the next that is written, says how many were left out since the last one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, ...], tuple[float, int]] = {}  # when it was written, how many since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        fields = [str(getattr(record, name, "")) for name in _TELLING]
        alike = (record.name, record.getMessage(), *fields, repr(record.exc_info and record.exc_info[1]))
        written_at, repeats = self._last.get(alike, (float("-inf"), 0))
        if 0 <= record.created - written_at < ALIKE_S:
            self._last[alike] = written_at, repeats + 1
            return False
        if len(self._last) >= MOST_KINDS:
            self._last.clear()
        self._last[alike] = record.created, 0
        if repeats:
            record.repeats = repeats
        return True


def configure(level: str = "INFO") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(Sparing())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True

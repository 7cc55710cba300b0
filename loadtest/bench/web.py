"""The web a bench registers: made from page numbers alone, the same in every run.

Hosts are of very different sizes, and one of them holds a tenth of all pages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

PAGES_AT_ONCE = 1000
PAGES_PER_HOST = 10  # of the web that is served from, so that politeness does not decide
MANY_PER_HOST = 50  # of webs of many pages: 20,000 hosts for a million
LARGE_SHARE = 10  # one page in so many is of the largest host
OLDEST_S, YOUNGEST_S = 20 * 86400.0, 3600.0
GOLDEN, SILVER, BRONZE = 0.6180339887, 0.4142135624, 0.3027756377


@dataclass(frozen=True, slots=True)
class Web:
    """So many pages; some hold a signal."""

    pages: int
    pages_per_host: int = PAGES_PER_HOST

    @property
    def hosts(self) -> int:
        return max(1, self.pages // self.pages_per_host)

    def url(self, number: int) -> str:
        """73 bytes."""
        return (
            f"https://h{self._host(number):06d}.example/articles/{number:010d}/some-words-of-a-typical-title"
        )

    def _host(self, number: int) -> int:
        """Sizes fall with the square root of the host's rank, down to about half the mean."""
        if number % LARGE_SHARE == 0:
            return 0
        return int(self.hosts * _spread(number, GOLDEN) ** 2)

    def page(self, number: int) -> str:
        """The page as JSON, with what is believed of it at first."""
        rate = math.exp(-4.6 + 6.9 * _spread(number, SILVER))  # 0.01 to 10 changes a day
        importance = math.exp(4 * _spread(number, BRONZE) - 2)
        precision, recall = 0.3 + 0.6 * _spread(number, SILVER), 0.2 + 0.7 * _spread(number, BRONZE)
        return (
            f'{{"url":"{self.url(number)}","importance":{importance:.4f},"change_rate_per_day":{rate:.4f},'
            f'"precision":{precision:.3f},"recall":{recall:.3f}}}'
        )

    def first_crawl(self, number: int, now_at: float) -> str:
        """An outcome of some day in the past."""
        ago_s = YOUNGEST_S + (OLDEST_S - YOUNGEST_S) * _spread(number, GOLDEN + SILVER)
        return f'{{"url":"{self.url(number)}","fetched_at":{now_at - ago_s:.3f},"status":200,"changed":true}}'

    def signal(self, number: int, message: str) -> str:
        return f'{{"url":"{self.url(number)}","source":"bench","id":"{message}"}}'


def _spread(number: int, step: float) -> float:
    """Numbers evenly spread over [0, 1)."""
    return (number * step) % 1.0


def get(path: str, *, with_id: bool = False) -> bytes:
    """A request without a body; with an id, each one sent gets its own."""
    given = "X-Request-Id: {request-id}\r\n" if with_id else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{given}\r\n".encode()


def batch(method: str, path: str, field: str, items: Sequence[str]) -> bytes:
    """A request whose body holds these items of JSON under one field."""
    body = f'{{"{field}":[{",".join(items)}]}}'.encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def batches(method: str, path: str, field: str, items: Sequence[str], size: int) -> list[bytes]:
    return [batch(method, path, field, items[at : at + size]) for at in range(0, len(items), size)]


def leased(bodies: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """The pages in answers of `GET /next`."""
    for body in bodies:
        if body:
            yield from json.loads(body)["pages"]

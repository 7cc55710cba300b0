"""`freshet demo`: the service with a small web before it, so that there is something to look at.

A few crawlers ask for pages, copy them from a web that lives in this process, and report. Whoever publishes
there tells of some changes, and of some that never were. All of it goes through the service's HTTP interface.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.population import shared_population
from loadtest.web import SyntheticWeb
from service.errors import SchedulerError
from service.settings import Settings
from service.supervisor import up

PAGES, HOSTS, CRAWLERS = 600, 40, 4
UNIT_S = 60.0  # of the web's time: a page changes every two minutes on average
FETCH_S = 0.05
SOURCES = "sitemap", "cdn", "webhook"
LIVELY = {"bandwidth": 12.0, "min_delay_s": 0.5, "reprice_s": 5.0}  # where nobody chose
LOOK_S, TELL_S, AGAIN_S, TIMEOUT_S = 0.5, 5.0, 0.5, 30.0


def demo(settings: Settings) -> int:
    """As `freshet up`, on a store of its own that is gone afterwards."""
    if settings.redis_url or not settings.is_loopback:
        raise SchedulerError("`freshet demo` brings its own store, and serves this machine only")
    lively: dict[str, Any] = {name: value for name, value in LIVELY.items() if is_default(settings, name)}
    with tempfile.TemporaryDirectory(prefix="freshet-demo-", ignore_cleanup_errors=True) as folder:
        settings = replace(settings, data_dir=Path(folder), **lively)
        # Not before: who answers on that port until then is another service, with pages of its own.
        return up(settings, Fleet(settings.host, settings.port).start)


def is_default(settings: Settings, name: str) -> bool:
    """Whether nobody chose another value."""
    return bool(getattr(settings, name) == getattr(Settings(), name))


class Fleet:
    """Crawlers and publishers of one web, a thread each."""

    def __init__(self, host: str, port: int, seed: int = 1) -> None:
        self._place = host, port
        population = shared_population(np.random.default_rng(seed), PAGES, HOSTS)
        self._web = SyntheticWeb(population, np.random.default_rng([seed, 1]))
        self._lock = threading.Lock()
        self._page_of = {url: page for page, url in enumerate(population.urls)}
        self._urls = population.urls
        self._sources = [SOURCES[host % len(SOURCES)] for host in population.host.tolist()]
        self._items = [
            {"url": url, "importance": importance}
            for url, importance in zip(population.urls, population.importance.tolist(), strict=True)
        ]
        self.crawls = self.signals = 0

    def start(self) -> None:
        """As soon as the service is ready; all of it ends with this process."""
        threading.Thread(target=self._begin, daemon=True).start()

    def _begin(self) -> None:
        _again_and_again(self._register)()
        self._began_at = time.time()
        for work in (self._publish, self._tell, *[self._crawl] * CRAWLERS):
            threading.Thread(target=_again_and_again(work), daemon=True).start()

    def _register(self) -> None:
        caller = self._caller()
        while caller.call("GET", "/readyz") is None:
            time.sleep(AGAIN_S)
        caller.call("PUT", "/pages", {"pages": self._items})

    def _caller(self) -> Caller:
        return Caller(*self._place)

    def _now(self) -> float:
        return (time.time() - self._began_at) / UNIT_S

    def _crawl(self) -> None:
        """One crawler: it waits for pages, and for their hosts to answer."""
        caller = self._caller()
        while True:
            found = caller.call("GET", "/next?wait=5") or {"pages": []}
            for page in found["pages"]:
                time.sleep(FETCH_S)
                with self._lock:
                    changed = self._web.crawl(self._page_of[page["url"]])
                    self.crawls += 1
                outcome = {"lease": page["lease"], "status": 200, "changed": changed}
                caller.call("POST", "/outcomes", {"outcomes": [outcome]})

    def _publish(self) -> None:
        """Let the web go on, and tell of what is heard of it."""
        caller = self._caller()
        while True:
            with self._lock:
                heard = self._web.advance(self._now())
                first, self.signals = self.signals, self.signals + len(heard)
            signals = [
                {
                    "url": self._urls[page],
                    "source": self._sources[page],
                    "at": self._began_at + at * UNIT_S,
                    "id": str(number),
                }
                for number, (at, page) in enumerate(heard, first)
            ]
            if signals:
                caller.call("POST", "/signals", {"signals": signals})
            time.sleep(LOOK_S)

    def _tell(self) -> None:
        """A line now and then: the truth beside what the service takes for it."""
        caller = self._caller()
        was_at, was_fresh = self._fresh()
        while True:
            time.sleep(TELL_S)
            at, fresh = self._fresh()
            status = caller.call("GET", "/admin/status") or {}
            expected = status.get("expected_freshness")
            believed = "not known yet" if expected is None else f"{expected:.0%}"
            truth = (fresh - was_fresh) / max(at - was_at, 1e-9)
            done = f"{at * UNIT_S:5.0f} s: {self.crawls} crawls, {self.signals} signals"
            print(f"  {done}; fresh copies {truth:.0%}, by the service's own estimate {believed}", flush=True)
            was_at, was_fresh = at, fresh

    def _fresh(self) -> tuple[float, float]:
        with self._lock:
            return self._web.now, self._web.fresh_time


class Caller:
    """One connection to the service."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = HTTPConnection(host, port, timeout=TIMEOUT_S)

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any] | None:
        """The decoded answer; None where it has none or is a refusal."""
        self._connection.request(method, path, None if body is None else json.dumps(body))
        with self._connection.getresponse() as response:
            answer = response.read()
            is_good = 200 <= response.status < 300 and answer
            return dict(json.loads(answer)) if is_good else None


def _again_and_again(work: Callable[[], None]) -> Callable[[], None]:
    """Work that begins anew where the service was away."""

    def keep_working() -> None:
        while True:
            try:
                return work()
            except (OSError, HTTPException):
                time.sleep(AGAIN_S)

    return keep_working

"""Drives the service through its own HTTP interface, in one process and on a clock of its own.

Per slot: the signals heard since the last one, one request for a page, and its outcome.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from loadtest.api import Api, Knowledge, UnexpectedAnswer
from loadtest.poison import Poison
from loadtest.population import UNIT_S
from loadtest.record import Recorder, Run
from loadtest.reference import Book, note_signals
from loadtest.schedule import Schedule
from loadtest.web import Signal, SyntheticWeb
from service.app import create_app
from service.clock import ManualClock
from service.settings import Settings
from service.store.connection import Server
from workers.learn import Learner
from workers.reprice import Repricer

PAGES_VERIFIED = 50
DEEPEST = 30.0  # beyond this depth a page is worth its ceiling in single precision
OLDEST_S = 5e11  # before 1970: signals age a page no further than to there
ANCHOR_ERROR_S, ANCHOR_ERROR = 0.002, 1e-6  # what rounding in the store may do to a page's anchor
Report = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do beside crawling; times in units, 0 for never."""

    schedule: Schedule
    sweep_every: float = 0.25
    judge_from: float = 0.0  # pick quality is computed from here on,
    judge_every: int = 1  # for one slot in so many
    verify_every: float = 20.0  # compare some pages' states with the book's
    shards: int = 4  # a thousand pages need no more, and each sweep costs a round per shard
    knowledge: Knowledge = "known"  # true models, held fixed; or nothing but importance
    learning: Literal["none", "pages", "pooled"] = "none"  # each page by itself, or hosts together
    learn_every: float = 0.5
    explore: float | None = None  # None for what the service does by default,
    min_crawls_per_day: float | None = None  # likewise,
    policy: str | None = None  # likewise
    objective: str | None = None  # likewise
    min_delay_s: float = 0.0  # politeness: seconds between two crawls of a host


class Driver:
    """One run: a web, the service before it, and a book beside it that knows what was done."""

    def __init__(
        self,
        api: Api,
        web: SyntheticWeb,
        clock: ManualClock,
        repricer: Repricer,
        *,
        learner: Learner | None = None,
        poison: Poison | None = None,
    ) -> None:
        self._api = api
        self._learner = learner
        self._poison = poison
        self._web = web
        self._clock = clock
        self._repricer = repricer
        self._began_at = clock.now_at
        self._page_of = {url: page for page, url in enumerate(web.population.urls)}
        self._urls = web.population.urls
        self._signals_sent = 0
        self._lag_s = 0.0
        self._chosen = random.Random(0)
        self.book = Book(web.population.model)

    async def run(self, plan: Plan, report: Report = lambda _: None) -> Run:
        """Ask once per slot until the schedule ends."""
        await self._prepare(plan)
        recorder, started = Recorder(), time.perf_counter()
        chores = self._chores(plan)
        done_at = dict.fromkeys(chores, 0.0)
        for at, rate in plan.schedule.ticks():
            if rate is not None:
                await self._turn_dial(at, rate)
                continue
            self._clock.now_at = self._instant(at)
            for chore, every in chores.items():
                if at >= done_at[chore] + every:
                    await chore()
                    done_at[chore] = at
            done = len(recorder.rows)
            judged = at >= plan.judge_from and plan.judge_every and done % plan.judge_every == 0
            await self._slot(at, bool(judged), recorder)
            if done % 100 == 0:
                report(done)
        return recorder.finish(time.perf_counter() - started)

    async def _prepare(self, plan: Plan) -> None:
        await self._api.put_pages(self._web.population, plan.knowledge)
        names = ("explore", "min_crawls_per_day", "policy", "objective")
        wanted = {name: getattr(plan, name) for name in names}
        changes = {name: value for name, value in wanted.items() if value is not None}
        if changes:
            await self._api.set_policy(**changes)

    def _chores(self, plan: Plan) -> dict[Callable[[], Awaitable[None]], float]:
        """What is done beside crawling, and every how many units."""
        chores: dict[Callable[[], Awaitable[None]], float] = {}
        if self._learner is not None:
            chores[self._learn] = plan.learn_every
        chores[self._sweep] = plan.sweep_every
        if plan.knowledge == "known" and self._poison is None:  # else the book knows better
            chores[self._verify] = plan.verify_every
        return {chore: every for chore, every in chores.items() if every}

    async def _learn(self) -> None:
        assert self._learner is not None
        await self._learner.learn_all(self._clock.now_at)

    async def _sweep(self) -> None:
        await self._repricer.sweep_all(self._clock.now_at)

    def _instant(self, at: float) -> float:
        return self._began_at + self._lag_s + at * UNIT_S

    async def _turn_dial(self, at: float, rate: float) -> None:
        """From here on slots are asked for a little after they begin, whatever rounding did."""
        self._clock.now_at = max(self._clock.now_at, self._began_at + at * UNIT_S)
        await self._api.set_bandwidth(rate / UNIT_S)
        self._lag_s = self._lag_s or min(1.0, 0.01 * UNIT_S / rate)

    async def _slot(self, at: float, judged: bool, recorder: Recorder) -> None:
        heard = self._web.advance(at)
        note_signals(self.book, heard)  # which of them is a lie only the book knows
        await self._send(sorted(heard + self._poison.advance(at)) if self._poison else heard)
        page = await self._api.next()
        now, number = self._clock.now_at, self._page_of[page["url"]]
        is_first = page["last_crawled_at"] is None
        value = float("nan") if is_first else float(page["value"])
        quality = self._quality(number, now) if judged and not is_first else float("nan")
        recorder.add(at, number, value, quality, self._web.fresh_time, self.book.freshness(now))
        await self._api.outcome(page["lease"], now, self._web.crawl(number))
        self.book.crawl(number, now)

    async def _send(self, signals: list[Signal]) -> None:
        if not signals:
            return
        first, self._signals_sent = self._signals_sent, self._signals_sent + len(signals)
        items = [
            {"url": self._urls[page], "source": "synthetic", "at": self._instant(at), "id": str(id_)}
            for id_, (at, page) in enumerate(signals, first)
        ]
        await self._api.signal(items)

    def _quality(self, page: int, now: float) -> float:
        """Exact value of what was served ÷ the largest exact value there was."""
        _, best = self.book.best(now)
        return self.book.value(page, now) / best if best > 0 else 1.0

    async def _verify(self) -> None:
        """The service must hold the same state of a page as the book."""
        pages = range(len(self._urls))
        for page in self._chosen.sample(pages, min(len(pages), PAGES_VERIFIED)):
            held = (await self._api.page(self._urls[page]))["effective_elapsed_s"]
            if self.book.is_new[page] and held is None:
                continue
            now_at = self._clock.now_at
            meant = min(self.book.effective_elapsed_s(page, now_at), now_at + OLDEST_S)
            deepest_s = DEEPEST / self.book.model.silent_rate[page]
            if held is not None and min(held, meant) > deepest_s:
                continue  # worth its ceiling by either count
            error_s = ANCHOR_ERROR_S + 0.001 * self.book.signals[page] + ANCHOR_ERROR * meant
            if held is None or abs(held - meant) > error_s:
                raise UnexpectedAnswer(f"{self._urls[page]} is aged {held} s instead of {meant} s")


async def simulate(
    redis_url: str,
    web: SyntheticWeb,
    plan: Plan,
    report: Report = lambda _: None,
    *,
    poison: Poison | None = None,
) -> Run:
    """Run a plan against a service of its own over an empty store."""
    first_rate = plan.schedule.steps[0][1] / UNIT_S
    settings = Settings(
        redis_url=redis_url,
        min_delay_s=plan.min_delay_s,
        bandwidth=first_rate,
        shards=plan.shards,
        ahead_s=0.0,  # many requests in a second are few by the clock of the web
    )
    clock, server = ManualClock(), Server(redis_url)
    app = create_app(settings, clock=clock)
    repricer, learner = Repricer(server, settings, clock), None
    if plan.learning != "none":
        learner = Learner(server, settings, clock, pooled=plan.learning == "pooled")
    try:
        async with app.router.lifespan_context(app):
            driver = Driver(Api(app), web, clock, repricer, learner=learner, poison=poison)
            return await driver.run(plan, report)
    finally:
        await server.close()

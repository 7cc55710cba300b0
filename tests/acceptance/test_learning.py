"""The promise about learning: a service told nothing becomes nearly as good as one told everything.

Short runs through the real interface; `freshet simulate learn` makes the long ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from loadtest.api import Api
from loadtest.drive import Plan, simulate
from loadtest.poison import Poison
from loadtest.population import UNIT_S, mixed_population, shared_population
from loadtest.record import Run
from loadtest.reference import replay
from loadtest.scene import BELIEVING_DEFAULTS, LEARNING, TOLD
from loadtest.schedule import Schedule
from loadtest.simulate import main
from loadtest.web import SyntheticWeb
from service.app import create_app
from service.clock import ManualClock
from service.embedded import EmbeddedServer
from service.settings import Settings
from service.store.bins import Bins
from service.store.connection import Server
from service.store.observations import Observations
from service.store.records import model_of, read_heads
from service.store.scripts import function_name
from workers.learn import Learner

QUIET_PASSES = 10
LEARNED = 0.95  # measured: 0.98 to 0.99
BETTER = 1.03  # measured: 1.06
PAGES, HOSTS, RATE, END = 200, 8, 60.0, 36.0
LAST_THIRD = (2 * END / 3, END)
POPULATION = shared_population(np.random.default_rng(1), PAGES, HOSTS)


def same_web() -> SyntheticWeb:
    return SyntheticWeb(POPULATION, np.random.default_rng(2))


# --- the webs


def test_pages_of_a_host_share_precision_and_recall() -> None:
    for host in range(HOSTS):
        pages = POPULATION.host == host
        assert np.ptp(POPULATION.recall[pages]) == 0
        assert np.ptp(POPULATION.precision[pages]) < 1e-12
    assert 0.2 <= POPULATION.precision.min() < POPULATION.precision.max() <= 0.95


def test_pages_of_a_mixed_host_share_recall_and_false_rate() -> None:
    mixed = mixed_population(np.random.default_rng(1), PAGES, HOSTS)
    for host in range(HOSTS):
        assert np.ptp(mixed.recall[mixed.host == host]) == 0
        assert np.ptp(mixed.false_rate[mixed.host == host]) == 0


def test_a_fifth_of_the_hosts_lie_tenfold_from_their_moment_on() -> None:
    """Their lies are Poisson, so counts differ from the mean by a few roots of it."""
    poison = Poison(POPULATION, np.random.default_rng(3), begin=10.0)
    assert len(np.unique(POPULATION.host[poison.pages])) == round(0.2 * HOSTS)
    assert poison.advance(10.0) == []
    lies = poison.advance(20.0) + poison.advance(50.0)
    honest = POPULATION.recall * POPULATION.change_rate + POPULATION.false_rate
    expected = 10 * float(honest[poison.pages].sum()) * 40.0
    assert len(lies) == pytest.approx(expected, abs=4 * np.sqrt(expected))
    assert lies == sorted(lies)
    assert all(poison.pages[page] and at > 10.0 for at, page in lies)


# --- freshness


def crawl(folder: Path, told: dict[str, Any]) -> Run:
    """The same web, crawled by a service that was told this much of it."""
    plan = Plan(Schedule(((0.0, RATE),), END), judge_every=0, sweep_every=0.5, learn_every=1.0, **told)
    with EmbeddedServer(folder) as server:
        return asyncio.run(simulate(server.url, same_web(), plan))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return crawl(tmp_path_factory.mktemp("known"), TOLD)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return crawl(tmp_path_factory.mktemp("learned"), LEARNING)


@pytest.fixture(scope="module")
def believed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return crawl(tmp_path_factory.mktemp("believed"), BELIEVING_DEFAULTS)


def test_a_replayed_run_finds_the_same_freshness(known: Run) -> None:
    again = replay(same_web(), known)
    assert again.fresh_time == pytest.approx(known.fresh_time)
    assert again.expected == pytest.approx(known.expected)


def test_what_is_expected_is_what_happens(known: Run, learned: Run) -> None:
    """The yardstick of the tests below is the mean of what they are about."""
    for run in (known, learned):
        assert run.expected_freshness(END / 3, END) == pytest.approx(run.freshness(END / 3, END), rel=0.05)


def test_what_is_learned_is_nearly_as_good_as_the_truth(known: Run, learned: Run) -> None:
    assert learned.expected_freshness(*LAST_THIRD) / known.expected_freshness(*LAST_THIRD) >= LEARNED


def test_learning_beats_believing_the_defaults_for_ever(learned: Run, believed: Run) -> None:
    assert learned.expected_freshness(*LAST_THIRD) >= BETTER * believed.expected_freshness(*LAST_THIRD)


# --- learners that die


class Killed(BaseException):
    """The process is gone."""


class MortalServer(Server):
    """A connection whose owner dies at its nth command, before the store hears of it or just after."""

    def __init__(self, url: str, dies_at: int, *, is_heard: bool) -> None:
        super().__init__(url, connections=4)
        self._left = dies_at
        self._is_heard = is_heard

    async def _send(self, commands: Any) -> list[Any]:
        self._left -= 1
        if self._left > 0:
            return await super()._send(commands)
        if self._is_heard:
            await super()._send(commands)
        raise Killed


@dataclass(frozen=True)
class Log:
    """What senders and crawlers reported, in batches: (when, signals, outcomes)."""

    urls: list[dict[str, Any]]
    batches: list[tuple[float, list[dict[str, Any]], list[dict[str, Any]]]]


def make_log(pages: int, hosts: int, batches: int) -> Log:
    """Pages crawled at random, whatever anybody believes of them."""
    population = shared_population(np.random.default_rng(5), pages, hosts)
    web, rng = SyntheticWeb(population, np.random.default_rng(6)), np.random.default_rng(7)
    began_at, found = ManualClock().now_at, []
    for number in range(1, batches + 1):
        now_at = began_at + number * UNIT_S
        signals = [
            {"url": population.urls[page], "source": "test", "at": began_at + at * UNIT_S}
            for at, page in web.advance(float(number))
        ]
        chosen = range(pages) if number == 1 else rng.choice(pages, pages // 2, replace=False).tolist()
        outcomes = [
            {"url": population.urls[page], "fetched_at": now_at, "status": 200, "changed": web.crawl(page)}
            for page in chosen
        ]
        found.append((now_at, signals, outcomes))
    return Log([{"url": url} for url in population.urls], found)


class Listener:
    """A service that hears a log while learners come and go."""

    def __init__(self, url: str, *, settled: float = 0.0) -> None:
        self._clock = ManualClock()
        self._settled = settled
        self._settings = Settings(redis_url=url, shards=2)
        self._server = Server(url)

    async def hear(self, log: Log, rng: np.random.Generator | None, *, learning: bool = True) -> int:
        """Learn after every batch; with a generator, die somewhere in most passes. How many died."""
        app, deaths = create_app(self._settings, clock=self._clock), 0
        async with app.router.lifespan_context(app):
            api = Api(app)
            await api.call("PUT", "/pages", msgspec.json.encode({"pages": log.urls}))
            for now_at, signals, outcomes in log.batches:
                self._clock.now_at = now_at
                await api.call("POST", "/signals", msgspec.json.encode({"signals": signals}))
                await api.call("POST", "/outcomes", msgspec.json.encode({"outcomes": outcomes}))
                if rng is not None:
                    deaths += await self._learn_and_die(rng)
                elif learning:
                    await self.learn()
        return deaths

    async def learn(self, server: Server | None = None) -> int:
        """One pass; how many models were written."""
        learner = Learner(server or self._server, self._settings, self._clock, settled=self._settled)
        return await learner.learn_all(self._clock.now_at)

    async def _learn_and_die(self, rng: np.random.Generator) -> bool:
        """One pass by a learner of its own, which may not see its end."""
        dies_at, is_heard = int(rng.integers(1, 30)), bool(rng.integers(2))
        server = MortalServer(self._settings.redis_url, dies_at, is_heard=is_heard)
        try:
            await self.learn(server)
        except Killed:
            return True
        finally:
            await server.close()
        return False

    async def settle(self) -> None:
        """Learn until nothing changes, not even what single precision would hide for a few passes."""
        before, quiet = b"", 0
        for _ in range(200):
            await self.learn()
            models = (await self.models()).tobytes()
            quiet, before = (quiet + 1 if models == before else 0), models
            if quiet == QUIET_PASSES:
                return
        raise AssertionError("beliefs do not settle")

    async def models(self) -> np.ndarray:
        """(importance, α, κ, γ) of every page, in the order of hosts and ids."""
        rows = []
        for name, raw in await self._records():
            model = model_of(read_heads([raw]))
            figures = (model.importance, model.silent_rate, model.signal_weight, model.signal_rate)
            rows.append((name, [float(figure[0]) for figure in figures]))
        return np.array([figures for _, figures in sorted(rows)])

    async def evidence(self) -> tuple[dict[tuple[str, int], bytes], dict[str, bytes]]:
        """What is kept of every page, and how far every host is trusted."""
        observations = Observations(self._server, self._settings.shards)
        evidence: dict[tuple[str, int], bytes] = {}
        trust: dict[str, bytes] = {}
        for shard in range(self._settings.shards):
            names = [name for name, _ in await self._records([shard])]
            raws, kept, _ = await observations.evidence(shard, names)
            evidence.update(zip(names, raws, strict=True))
            trust.update(kept)
        return evidence, trust

    async def _records(self, shards: list[int] | None = None) -> list[tuple[tuple[str, int], bytes]]:
        found = []
        for shard in shards or range(self._settings.shards):
            async for bins, _ in Bins(self._server, self._settings.shards).walk(shard):
                for page_bin in bins:
                    names = [(page_bin.host_id, page_id) for page_id in page_bin.ids]
                    found += zip(names, page_bin.records, strict=True)
        return found

    async def close(self) -> None:
        await self._server.close()


async def test_learners_that_die_leave_the_same_beliefs_as_one_that_lives(tmp_path: Path) -> None:
    """Whatever dies in between, evidence is a function of the log, and beliefs of the evidence."""
    log = make_log(pages=30, hosts=4, batches=20)
    found = []
    for name, rng in (("lives", None), ("dies", np.random.default_rng(8))):
        with EmbeddedServer(tmp_path / name) as server:
            listener = Listener(server.url)
            deaths = await listener.hear(log, rng)
            assert deaths >= 10 or rng is None
            await listener.settle()
            found.append((await listener.evidence(), await listener.models()))
            await listener.close()
    (evidence, models), (other_evidence, other_models) = found
    assert len(evidence[0]) == len(models) == 30
    assert evidence == other_evidence
    np.testing.assert_allclose(other_models, models, rtol=1e-9)


class DiesBeforeModels(Server):
    """A connection whose owner dies when it is about to write models."""

    async def _send(self, commands: Any) -> list[Any]:
        if commands[0][:2] == ("FCALL", function_name("remodel")):
            raise Killed
        return await super()._send(commands)


async def test_news_is_news_until_the_models_are_written(tmp_path: Path) -> None:
    """A learner that finds its host settled and dies before it has written leaves the rest to the next."""
    log = make_log(pages=10, hosts=1, batches=4)
    with EmbeddedServer(tmp_path) as server:
        listener = Listener(server.url, settled=np.inf)
        await listener.hear(log, None, learning=False)
        told = await listener.models()
        mortal = DiesBeforeModels(server.url)
        with pytest.raises(Killed):
            await listener.learn(mortal)
        await mortal.close()
        await listener.learn()
        models = await listener.models()
        await listener.close()
    assert np.all(models[:, 1] != told[:, 1])


async def test_a_host_nobody_signals_settles_too(tmp_path: Path) -> None:
    log = make_log(pages=10, hosts=1, batches=6)
    silent = Log(log.urls, [(at, [], outcomes) for at, _, outcomes in log.batches])
    with EmbeddedServer(tmp_path) as server:
        listener = Listener(server.url, settled=1e-3)
        await listener.hear(silent, None, learning=False)
        written = [await listener.learn() for _ in range(40)]
        await listener.close()
    assert written[0] == 10
    assert written[-1] == 0


# --- the command


def test_the_experiments_write_tables_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--pages", "20", "--hosts", "5", "--time", "6", "--bandwidth", "6", "--window", "2"]
    assert main(["poison", *small, "--out", str(tmp_path)]) == 0
    assert "share of belief" in capsys.readouterr().out
    assert (tmp_path / "poison.png").stat().st_size > 1000
    assert len((tmp_path / "poison.csv").read_text().splitlines()) == 5


def test_every_policy_drives_the_service_and_the_exact_value_is_freshest(tmp_path: Path) -> None:
    """Small and short: the order holds only between policies that differ by much."""
    small = ["--pages", "60", "--hosts", "6", "--time", "18", "--bandwidth", "12", "--window", "2"]
    assert main(["policies", *small, "--population", "noisy", "--jobs", "2", "--out", str(tmp_path)]) == 0
    rows = [line.split(",") for line in (tmp_path / "policies.csv").read_text().splitlines()]
    found = {(row[0], row[1]): float(row[2]) for row in rows[1:]}
    assert len(found) == 13
    assert found["ncis", "freshness"] > 1.1 * found["uniform", "freshness"]
    assert found["ncis", "freshness"] > 1.2 * found["change-rate", "freshness"]
    everybody = {(row[0], row[1]): float(row[4]) for row in rows[1:]}
    assert everybody["ncis", "delay"] > 0.85 > everybody["ncis", "freshness"]

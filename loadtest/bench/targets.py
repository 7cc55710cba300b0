"""What the product is to reach, and whether it did: always as ratios within one run, or plain figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.bench import cluster, growth, intake, reprice, serving
from loadtest.bench.figures import Findings
from loadtest.bench.peers.race import PEERS, ours_name
from loadtest.bench.plan import Plan

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a figure, or on its ratio to another."""

    says: str
    name: str
    bound: float
    over: str = ""
    at_least: bool = True

    @property
    def wanted(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:,g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, what was found in each round, and the judgement by its median."""

    target: Target
    values: list[float]

    @property
    def word(self) -> str:
        if not self.values:
            return "not measured"
        median, bound = statistics.median(self.values), self.target.bound
        return "reached" if (median >= bound if self.target.at_least else median <= bound) else "not reached"


def judge(findings: Findings, plan: Plan) -> list[Verdict]:
    """Every target against what was measured."""
    verdicts = []
    for target in targets(plan):
        if target.over:
            values = findings.ratio(target.name, target.over)
        else:
            series = findings.get(target.name)
            values = series.values if series is not None else None
        verdicts.append(Verdict(target, values or []))
    return verdicts


def targets(plan: Plan) -> Iterator[Target]:
    """In the order of the parts; sizes are the largest that were measured."""
    usual = serving.USUAL
    bare, fastapi = serving.noop_name("bare", usual), serving.noop_name("fastapi", usual)
    for with_id in (False, True):
        name = serving.next_name(1, usual, 1, with_id=with_id)
        yield Target(f"{name} ÷ {bare}", name, 0.35, bare)
        yield Target(f"{name} ÷ {fastapi}", name, 1.5, fastapi)
    ours = serving.latency_name(99, "/next n=1")
    other = serving.latency_name(99, serving.NOOPS["bare"])
    yield Target("/next n=1, p99 at 70% of its peak ÷ the bare no-op's", ours, 3, other, at_least=False)
    most = serving.next_name(50, usual, 1)
    yield Target(f"{most} ÷ minimal script", most, 0.5, serving.minimal_name(50))
    for what in ("outcomes", "signals"):
        name = intake.http_name(what, 1)
        yield Target(f"{name} ÷ the function alone", name, 0.5, intake.raw_name(what))
    yield from _peers()
    yield from _sizes(plan)
    for count in cluster.COUNTS:
        one, three = (cluster.figure_name(store, count) for store in cluster.STORES)
        yield Target(f"{three} ÷ one server", three, 0.8, one)


def _peers() -> Iterator[Target]:
    for peer in PEERS:
        for count in (50, 1):
            ours = ours_name(count)
            yield Target(f"/next n={count} per core ÷ {peer.name}'s", ours, 3, peer.figure)


def _sizes(plan: Plan) -> Iterator[Target]:
    sizes = sorted(plan.sizes)
    middle = MILLION if MILLION in sizes else sizes[-1]
    largest = sizes[-1]
    meant = "" if middle == MILLION else " (meant for 1,000,000 pages)"
    name = growth.memory_name(middle)
    yield Target(name + meant, name, 200, at_least=False)
    for name in (growth.load_name(largest), growth.import_name(largest)):
        yield Target(name, name, 50_000)
    if len(sizes) > 1:
        meant = "" if largest >= 10 * MILLION else " (meant for 10,000,000 pages)"
        name = growth.growth_name(largest)
        yield Target(name + meant, name, 1.3, at_least=False)
    yield Target(growth.slow_name(largest), growth.slow_name(largest), 0, at_least=False)
    name = reprice.sweep_name(plan.sweep_pages)
    bound_s = 30 * plan.sweep_pages / MILLION
    yield Target(f"{name}, seconds (30 per 1,000,000 pages)", name, bound_s, at_least=False)
    name = reprice.kept_name(plan.sweep_pages)
    yield Target(name, name, 0.9)

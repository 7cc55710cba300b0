"""Part `cluster`: the same service on three primaries beside one server, on the same cores."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack

from loadtest.bench import state
from loadtest.bench.plan import Bench
from loadtest.bench.servers import MakeStore, Stack, cluster_only, stack, store_only
from loadtest.bench.web import Web, get

STORES = {"one server": store_only, "three primaries": cluster_only}
COUNTS = (1, 50)
CONNECTIONS = 32


def figure_name(store: str, count: int) -> str:
    return f"/next n={count}, {CONNECTIONS} connections, {store}"


def cluster(bench: Bench) -> None:
    """Rounds of both in turns; who is not asked uses nothing."""
    web = Web(bench.plan.cluster_pages)
    with ExitStack() as started:
        bench.step("starting one server and three primaries")
        stacks = {name: started.enter_context(_stack(store)) for name, store in STORES.items()}
        for made in stacks.values():
            made.wait()
            state.prepare(made, bench.load, web, bench.step)
        for number in range(bench.plan.rounds):
            bench.step(f"round {number + 1} of {bench.plan.rounds}: cluster")
            for count in COUNTS:
                for name, made in stacks.items():
                    rate = _urls_per_s(bench, made, count)
                    bench.findings.add("cluster", figure_name(name, count), rate, "URLs/s")


def _stack(store: MakeStore) -> AbstractContextManager[Stack]:
    return stack(state.SETTINGS, store=store)


def _urls_per_s(bench: Bench, made: Stack, count: int) -> float:
    tally = bench.press(made.service.port, get(f"/next?n={count}"), CONNECTIONS)
    state.give_back(bench.load, made.service, tally.bodies)
    return tally.leases / tally.seconds

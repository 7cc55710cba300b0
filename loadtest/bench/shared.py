"""Serving side by side: servers that all stay up, measured in turns within each round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from loadtest.bench import state
from loadtest.bench.noop import noop
from loadtest.bench.plan import Bench
from loadtest.bench.raw import Functions, Minimal
from loadtest.bench.servers import Service, Stack, stack
from loadtest.bench.web import Web
from service.settings import read_settings


@dataclass(frozen=True, slots=True)
class Shared:
    """What the parts of a round measure."""

    bench: Bench
    web: Web
    noops: dict[str, Service]
    stack: Stack
    minimal: Minimal
    functions: Functions


@contextmanager
def shared(bench: Bench) -> Iterator[Shared]:
    """Everything up and in the state to be measured."""
    plan, web = bench.plan, Web(bench.plan.pages)
    with ExitStack() as started:
        bench.step("starting the servers")
        noops = {kind: started.enter_context(noop(kind)) for kind in ("bare", "fastapi")}
        made = started.enter_context(stack(state.SETTINGS, plan.processes))
        for service in noops.values():
            service.wait()
        made.wait()
        state.prepare(made, bench.load, web, bench.step)
        functions = Functions(made.store, read_settings(made.environment, {}))
        yield Shared(bench, web, noops, made, Minimal(made.store, plan.pages), functions)


Part = Callable[[Shared], None]


def run_rounds(bench: Bench, parts: dict[str, Part]) -> None:
    """The chosen parts in turns, round after round."""
    chosen = {name: part for name, part in parts.items() if name in bench.plan.parts}
    if not chosen:
        return
    with shared(bench) as servers:
        for number in range(bench.plan.rounds):
            for name, part in chosen.items():
                bench.step(f"round {number + 1} of {bench.plan.rounds}: {name}")
                part(servers)

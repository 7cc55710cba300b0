"""The state in which serving is measured: pages crawled before, with models, most of them due again.

Made through the product's own interface, but for the price, which only days of serving would bring about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from loadtest.bench.client import Job, Load, Tally
from loadtest.bench.figures import percentile
from loadtest.bench.servers import Service, Stack
from loadtest.bench.web import PAGES_AT_ONCE, Web, batches, get, leased
from service.clock import ServerClock
from service.domain import Policy
from service.settings import read_settings
from service.store.connection import Server
from service.store.control import Control
from workers.reprice import Repricer

CHUNK = 50_000  # pages whose requests are prepared at a time
CONNECTIONS = 4
SIGNALLED_SHARE = 11  # one page in so many has a signal waiting; not 10, or all were the largest host's
DUE_SHARE = 0.7  # of the pages have reached the price
SAMPLE = 50  # pages looked at to find a price
REST_S = "0.1"
SETTINGS = {
    "FRESHET_BANDWIDTH": "1000000",  # so that the pace never empties
    "FRESHET_MIN_DELAY_S": REST_S,
    "FRESHET_LEASE_S": "3600",  # so that none runs out before it is given back
}
DESCRIPTION = (
    "73-byte URLs on hosts of very different sizes (10 pages each on average, 50 for `growth` and `reprice`, "
    "one host with a tenth of all), every page with a model of its own, crawled once within 20 days, one in "
    f"eleven with a signal waiting, about {DUE_SHARE:.0%} due. Politeness on: hosts rest {REST_S} s after a "
    "lease. Bandwidth 1,000,000 crawls/s, so that the pace never empties. What is leased in a measurement is "
    "given back after it (outcomes: with a fetch time just after the page's last one), so that every round "
    "finds the same state."
)
Step = Callable[[str], None]


class Refused(RuntimeError):
    """The service did not take what the bench gave it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """How registering went."""

    rates: list[float]  # pages per second, of each chunk
    empty_bytes: int  # of the store before
    loaded_bytes: int  # with all pages, never crawled


def load_pages(stack: Stack, load: Load, web: Web, step: Step) -> Loaded:
    """Register every page through `PUT /pages`; only the sending is timed."""
    empty = _used(stack)
    rates = []
    for begin, end in _chunks(web.pages):
        step(f"registering pages {begin:,} of {web.pages:,}")
        items = [web.page(number) for number in range(begin, end)]
        tally = send_all(load, stack.service, batches("PUT", "/pages", "pages", items, PAGES_AT_ONCE))
        rates.append((end - begin) / tally.seconds)
    return Loaded(rates, empty, _used(stack))


def age_pages(stack: Stack, load: Load, web: Web, step: Step) -> None:
    """Give every page a past: a crawl, and some of them a signal."""
    now_at = time.time()
    for begin, end in _chunks(web.pages):
        step(f"a past for pages {begin:,} of {web.pages:,}")
        crawls = [web.first_crawl(number, now_at) for number in range(begin, end)]
        send_all(load, stack.service, batches("POST", "/outcomes", "outcomes", crawls, PAGES_AT_ONCE))
        heard = range(begin, end, SIGNALLED_SHARE)
        signals = [web.signal(number, f"first-{number}") for number in heard]
        send_all(load, stack.service, batches("POST", "/signals", "signals", signals, PAGES_AT_ONCE))


def price_pages(stack: Stack, web: Web, step: Step) -> None:
    """Set a price most pages have reached, and rank all of them by it."""
    step("ranking all pages")
    values = []
    for at in range(SAMPLE):
        url = web.url(at * web.pages // SAMPLE)
        values.append(stack.service.call("GET", f"/pages?url={quote(url, safe='')}")["value"])
    asyncio.run(_rank(stack, percentile(values, 1 - DUE_SHARE)))


async def _rank(stack: Stack, price: float) -> None:
    server, clock = Server(stack.url, connections=4), ServerClock()
    try:
        control = Control(server, clock)
        await control.open_price(price, Policy().value_name)
        settings = read_settings(stack.environment, {})
        await Repricer(server, settings, clock).sweep_all(await control.now())
    finally:
        await server.close()


def prepare(stack: Stack, load: Load, web: Web, step: Step) -> Loaded:
    """The whole state of `DESCRIPTION`."""
    loaded = load_pages(stack, load, web, step)
    age_pages(stack, load, web, step)
    price_pages(stack, web, step)
    return loaded


def send_all(load: Load, service: Service, requests: Sequence[bytes]) -> Tally:
    """Each request once; Refused unless all were taken."""
    job = Job(service.port, list(requests), connections=CONNECTIONS, keep=True)
    tally = load.run(job)
    refused = [b for b in tally.bodies if b'"rejected":[]' not in b]
    if refused or set(tally.statuses) - {200, 202}:
        raise Refused(f"{dict(tally.statuses)} {refused[:1]!r:.300}")
    return tally


def give_back(load: Load, service: Service, bodies: Sequence[bytes]) -> None:
    """Release every page leased in these answers."""
    release(load, service, [page["lease"] for page in leased(bodies)])


def release(load: Load, service: Service, leases: Sequence[str]) -> None:
    """The pages wait again, and after it so do their hosts."""
    if leases:
        tokens = [f'"{lease}"' for lease in leases]
        send_all(load, service, batches("POST", "/leases/release", "leases", tokens, PAGES_AT_ONCE))
        time.sleep(float(REST_S))


def take(load: Load, service: Service, pages: int) -> list[bytes]:
    """Answers that lease so many pages or a few more."""
    bodies: list[bytes] = []
    missing = pages
    while missing > 0:
        requests = [get(f"/next?n={min(missing, 1000)}&wait=1")] * max(1, missing // 1000)
        tally = load.run(Job(service.port, requests, connections=CONNECTIONS, keep=True))
        got = sum(1 for _ in leased(tally.bodies))
        if not got:
            raise Refused(f"nothing to lease: {dict(tally.statuses)}")
        bodies += tally.bodies
        missing -= got
    return bodies


def _chunks(pages: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + CHUNK, pages)) for begin in range(0, pages, CHUNK)]


def _used(stack: Stack) -> int:
    return int(stack.store.info("memory")["used_memory"])

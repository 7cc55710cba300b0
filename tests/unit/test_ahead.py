"""A dispatcher that leases ahead: who comes next is answered without a call, each page goes to one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from service.dispatcher import PAGES_PER_CALL, Ask, Dispatcher
from service.domain import Nothing
from service.errors import StoreUnavailable
from service.stock import HOLD_S, LEAST
from service.waiting import Leases

AHEAD_S = 1 / 128  # exact in sums
PLAIN = ("", 1, False)


class Time:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Store:
    """Numbers the pages it leases; keeps answers by id."""

    def __init__(self) -> None:
        self.calls: list[list[Ask]] = []
        self.kept: dict[str, Leases] = {}
        self.numbers: Iterator[int] = count()
        self.left = 10**6
        self.given_back: Leases = []
        self.keep_error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def serve(self, asks: list[Ask]) -> tuple[list[Leases], Nothing]:
        self.calls.append(asks)
        await self.gate.wait()
        return [self._lease(*ask) for ask in asks], Nothing("no-pages", 0.01)

    def _lease(self, request_id: str, wanted: int, _: bool) -> Leases:
        if request_id in self.kept:
            return self.kept[request_id]
        wanted = min(wanted, self.left)
        self.left -= wanted
        leases = [next(self.numbers) for _ in range(wanted)]
        if request_id:
            self.kept[request_id] = leases
        return leases

    async def keep(self, answers: list[tuple[str, object]]) -> list[bool]:
        if self.keep_error:
            raise self.keep_error
        return [self.kept.setdefault(name, [lease]) == [lease] for name, lease in answers]

    async def give_back(self, leases: Leases) -> None:
        self.given_back += leases


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("service.dispatcher.time", time)
    monkeypatch.setattr("service.stock.time", time)
    return time


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def dispatcher(store: Store, time: Time) -> AsyncIterator[Dispatcher]:
    assert time.now
    dispatcher = Dispatcher(store.serve, store.keep, store.give_back, ahead_s=AHEAD_S)  # type: ignore[arg-type]
    yield dispatcher
    await dispatcher.close()


async def ask(dispatcher: Dispatcher, requests: int, name: str = "") -> list[Leases | Nothing]:
    """So many at once; with ids if they have a name."""
    ids = [f"{name}{at}" if name else "" for at in range(requests)]
    async with asyncio.timeout(10):
        return list(await asyncio.gather(*(dispatcher.next(each, 1, 0) for each in ids)))


async def rush(dispatcher: Dispatcher, time: Time, requests: int = 20) -> list[Leases | Nothing]:
    """Requests in two windows, so that as many are expected in the third: leased when the next comes."""
    first = await ask(dispatcher, requests)
    time.now += AHEAD_S
    return first + await ask(dispatcher, 1)


async def late_comer(dispatcher: Dispatcher, store: Store, time: Time) -> asyncio.Task[Leases | Nothing]:
    """Who comes after twenty, and whose call, that leases for twenty more, is under way."""
    await ask(dispatcher, 20)
    time.now += AHEAD_S
    store.gate.clear()
    late = asyncio.create_task(dispatcher.next("", 1, 0))
    calls = len(store.calls)
    while len(store.calls) == calls:  # noqa: ASYNC110 - turn by turn
        await asyncio.sleep(0)
    return late


async def test_in_a_rush_a_call_leases_for_who_will_come(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    answers = await rush(dispatcher, time)
    assert store.calls[-1] == [PLAIN] * 21
    calls = len(store.calls)
    answers += await ask(dispatcher, 15)
    assert len(store.calls) == calls
    assert sorted(page for answer in answers for page in answer) == list(range(36))


async def test_where_few_come_each_is_asked_for_by_itself(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    for _ in range(5):
        await ask(dispatcher, LEAST - 1)
        time.now += AHEAD_S
    assert {len(call) for call in store.calls} == {LEAST - 1}


async def test_a_large_rush_leases_before_the_stock_is_empty(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    await rush(dispatcher, time, requests=200)
    held = sum(map(len, store.calls)) - 201
    calls = len(store.calls)
    await ask(dispatcher, held - PAGES_PER_CALL // 2)
    await asyncio.sleep(0)
    assert len(store.calls) > calls
    assert all(len(call) <= PAGES_PER_CALL for call in store.calls)


async def test_old_pages_are_not_handed_out(dispatcher: Dispatcher, store: Store, time: Time) -> None:
    await rush(dispatcher, time)
    time.now += 2 * HOLD_S
    assert await ask(dispatcher, 1) == [[41]]
    assert store.given_back == list(range(21, 41))


async def test_a_page_is_as_old_as_the_call_that_leased_it(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    """It may have been made just after the call was sent, and what an operator says is true from then on."""
    late = await late_comer(dispatcher, store, time)
    time.now += 2 * HOLD_S
    store.gate.set()
    assert await late == [20]
    assert await ask(dispatcher, 1) == [[41]]
    assert store.given_back == list(range(21, 41))


async def test_batches_are_not_served_from_the_stock(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    await rush(dispatcher, time)
    calls = len(store.calls)
    assert await dispatcher.next("", 2, 0) == [41, 42]
    assert len(store.calls) == calls + 1


async def test_an_id_gets_a_page_once_it_is_kept(dispatcher: Dispatcher, store: Store, time: Time) -> None:
    await rush(dispatcher, time)
    calls = len(store.calls)
    assert await ask(dispatcher, 3, "r") == [[21], [22], [23]]
    assert len(store.calls) == calls
    assert store.kept == {"r0": [21], "r1": [22], "r2": [23]}


async def test_a_retry_gets_what_its_first_try_got(dispatcher: Dispatcher, store: Store, time: Time) -> None:
    store.kept["r1"] = [-1]
    await rush(dispatcher, time)
    assert await ask(dispatcher, 3, "r") == [[21], [-1], [23]]
    assert store.calls[-1][0] == ("r1", 1, False)
    assert await ask(dispatcher, 1) == [[22]]  # which the retry did not need


async def test_many_with_ids_share_calls_and_all_are_answered(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    await rush(dispatcher, time, requests=100)
    answers = [asyncio.create_task(dispatcher.next(f"r{at}", 1, 0)) for at in range(10)]
    await asyncio.sleep(0)
    answers += [asyncio.create_task(dispatcher.next(f"s{at}", 1, 0)) for at in range(10)]
    await asyncio.sleep(0)
    answers += [asyncio.create_task(dispatcher.next(f"t{at}", 1, 0)) for at in range(10)]
    async with asyncio.timeout(10):
        pages = [page for answer in await asyncio.gather(*answers) for page in answer]
    assert len(set(pages)) == 30
    assert sorted(page for kept in store.kept.values() for page in kept) == sorted(pages)


async def test_a_page_that_may_be_kept_for_an_id_goes_to_nobody_else(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    await rush(dispatcher, time)
    store.keep_error = StoreUnavailable()
    with pytest.raises(StoreUnavailable):
        await dispatcher.next("r", 1, 0)
    assert await ask(dispatcher, 1) == [[22]]
    await dispatcher.close()
    assert 21 not in store.given_back


async def test_who_hung_up_takes_no_page(dispatcher: Dispatcher, time: Time) -> None:
    await rush(dispatcher, time)
    dispatcher.ask("", 1, 0, lambda _: None).is_gone = True
    assert await ask(dispatcher, 1) == [[21]]


async def test_who_waits_comes_before_the_stock_grows(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    store.left = 0
    patient = asyncio.create_task(dispatcher.next("", 1, 20))
    while not store.calls:  # noqa: ASYNC110 - turn by turn
        await asyncio.sleep(0)
    store.left = 1000
    await rush(dispatcher, time)
    assert len(await asyncio.wait_for(patient, 10)) == 1


async def test_at_the_end_what_is_coming_is_given_back_too(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    late = await late_comer(dispatcher, store, time)
    closing = asyncio.create_task(dispatcher.close())
    await asyncio.sleep(0)
    store.gate.set()
    await closing
    assert await late == [20]
    assert store.given_back == list(range(21, 41))

"""A dispatcher that leases ahead: who comes next is answered without a call, each page goes to one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from service.dispatcher import PAGES_PER_CALL, Ask, Dispatcher
from service.domain import Nothing
from service.stock import HOLD_S, LEAST
from service.waiting import Leases

AHEAD_S = 1 / 128  # exact in sums
PLAIN = ("", 1, False)
Call = tuple[list[Ask], int]  # requests, and pages for those who may come


class Time:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Store:
    """Numbers the pages it leases."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.numbers: Iterator[int] = count()
        self.left = 10**6
        self.given_back: Leases = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def serve(self, asks: list[Ask], ahead: int) -> tuple[list[Leases], Leases, Nothing]:
        self.calls.append((asks, ahead))
        await self.gate.wait()
        answers = [self._lease(wanted) for _, wanted, _ in asks]
        return answers, self._lease(ahead), Nothing("no-pages", 0.01)

    def _lease(self, wanted: int) -> Leases:
        wanted = min(wanted, self.left)
        self.left -= wanted
        return [next(self.numbers) for _ in range(wanted)]

    async def give_back(self, leases: Leases) -> None:
        self.given_back += leases

    @property
    def pages(self) -> list[int]:
        """Asked for by each call."""
        return [sum(wanted for _, wanted, _ in asks) + ahead for asks, ahead in self.calls]


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
    dispatcher = Dispatcher(store.serve, store.give_back, ahead_s=AHEAD_S)  # type: ignore[arg-type]
    yield dispatcher
    await dispatcher.close()


async def ask(dispatcher: Dispatcher, requests: int) -> list[Leases | Nothing]:
    """So many at once."""
    async with asyncio.timeout(10):
        return list(await asyncio.gather(*(dispatcher.next("", 1, 0) for _ in range(requests))))


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
    assert store.calls[-1] == ([PLAIN], 20)
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
    assert set(store.pages) == {LEAST - 1}


async def test_a_large_rush_leases_before_the_stock_is_empty(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    await rush(dispatcher, time, requests=200)
    held = sum(store.pages) - 201
    calls = len(store.calls)
    await ask(dispatcher, held - PAGES_PER_CALL // 2)
    await asyncio.sleep(0)
    assert len(store.calls) > calls
    assert max(store.pages) <= PAGES_PER_CALL


@pytest.mark.parametrize(("given", "goes_on"), [(10, True), (9, False)])
async def test_who_will_come_is_expected_while_the_store_has_half_of_what_is_asked_for(
    dispatcher: Dispatcher, store: Store, time: Time, given: int, goes_on: bool
) -> None:
    await ask(dispatcher, 20)
    time.now += AHEAD_S
    store.left = 1 + given
    await ask(dispatcher, 1)
    assert store.calls[-1] == ([PLAIN], 20)
    store.left = 100
    await ask(dispatcher, given + 1)  # the last of them finds nothing here
    assert store.calls[-1][1] == (20 if goes_on else 0)


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


async def test_ids_are_not_served_from_the_stock(dispatcher: Dispatcher, store: Store, time: Time) -> None:
    """The store has to know what a retry would get."""
    await rush(dispatcher, time)
    assert await dispatcher.next("id", 1, 0) == [41]
    assert store.calls[-1] == ([("id", 1, False)], 0)


async def test_who_asks_for_a_page_need_not_wait_behind_who_asks_for_more(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    await rush(dispatcher, time)
    store.gate.clear()
    batch = asyncio.create_task(dispatcher.next("", 2, 0))
    await asyncio.sleep(0)
    assert await ask(dispatcher, 3) == [[21], [22], [23]]
    store.gate.set()
    assert await batch == [41, 42]


async def test_who_waits_for_more_than_a_page_is_not_asked_for_because_there_is_a_stock(
    dispatcher: Dispatcher, store: Store, time: Time
) -> None:
    await rush(dispatcher, time)
    store.left = 0
    calls = len(store.calls)
    assert isinstance(await dispatcher.next("", 2, 0.05), Nothing)
    assert len(store.calls) - calls < 10  # every 10 ms, as the store said


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

"""Pages leased ahead: only for as many as will come, never handed out when old, never kept from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from service.errors import StoreUnavailable
from service.stock import HOLD_S, LEAST, MOST, Stock

AHEAD_S = 1 / 128  # exact in sums
START = 1000.0


class Store:
    """Takes leases back."""

    def __init__(self) -> None:
        self.given_back: list[str] = []
        self.has_some = asyncio.Event()
        self.error: Exception | None = None

    async def give_back(self, leases: list[str]) -> None:
        self.has_some.set()
        if self.error:
            raise self.error
        self.given_back += leases


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def stock(store: Store) -> AsyncIterator[Stock]:
    stock = Stock(store.give_back, AHEAD_S)
    yield stock
    await stock.close()


def rush(stock: Stock, requests: int, now: float = START) -> None:
    """So many came within a window that is over."""
    stock.note(0, now)
    stock.note(requests, now)
    stock.note(0, now + AHEAD_S)


async def test_nobody_is_expected_at_first(stock: Stock) -> None:
    stock.note(1000, START)
    assert stock.lacks() == 0


async def test_as_many_are_expected_as_came(stock: Stock) -> None:
    rush(stock, 20)
    assert stock.lacks() == 20


async def test_a_longer_window_counts_by_its_length(stock: Stock) -> None:
    stock.note(0, START)
    stock.note(100, START)
    stock.note(0, START + 4 * AHEAD_S)
    assert stock.lacks() == 25


@pytest.mark.parametrize(
    ("came", "expected"), [(LEAST - 1, 0), (LEAST, LEAST), (MOST, MOST), (MOST + 1, MOST)]
)
async def test_few_are_not_worth_it_and_not_more_than_two_calls_are_held(
    stock: Stock, came: int, expected: int
) -> None:
    rush(stock, came)
    assert stock.lacks() == expected


async def test_who_stays_away_is_no_longer_expected(stock: Stock) -> None:
    rush(stock, 20)
    stock.note(0, START + 10)
    assert stock.lacks() == 0


async def test_it_may_be_turned_off(store: Store) -> None:
    stock = Stock(store.give_back, 0.0)
    rush(stock, 1000)
    assert stock.lacks() == 0


async def test_what_is_held_or_coming_is_not_lacking(stock: Stock) -> None:
    rush(stock, 20)
    stock.ask(15)
    assert stock.lacks() == 5
    stock.add(15, [str(at) for at in range(15)], START)
    assert (stock.lacks(), stock.coming, len(stock)) == (5, 0, 15)


async def test_where_there_is_no_plenty_nothing_is_leased_ahead(stock: Stock) -> None:
    rush(stock, 20)
    stock.ask(20)
    stock.add(20, ["a"], START)
    assert stock.lacks() < 0
    assert stock.take(START) == "a"
    assert stock.lacks() == 0
    rush(stock, 20, START + AHEAD_S)
    assert stock.lacks() == 20


async def test_the_oldest_goes_first(stock: Stock) -> None:
    stock.add(0, ["a", "b"], START)
    stock.add(0, ["c"], START)
    assert [stock.take(START) for _ in range(4)] == ["a", "b", "c", None]


async def test_an_old_page_is_given_back_instead_of_handed_out(stock: Stock, store: Store) -> None:
    stock.add(0, ["old"], START)
    stock.add(0, ["new"], START + HOLD_S / 2)
    assert stock.take(START + 1.25 * HOLD_S) == "new"
    await store.has_some.wait()
    assert store.given_back == ["old"]


async def test_what_nobody_came_for_is_given_back_by_itself(stock: Stock, store: Store) -> None:
    stock.add(0, ["a", "b"], 0.0)  # long ago, however short the machine has been up
    async with asyncio.timeout(10):
        await store.has_some.wait()
    assert store.given_back == ["a", "b"]
    assert len(stock) == 0


async def test_at_the_end_everything_is_given_back(stock: Stock, store: Store) -> None:
    stock.add(0, ["a", "b"], START)
    await stock.close()
    assert store.given_back == ["a", "b"]


async def test_a_store_that_does_not_answer_is_told_of_and_nothing_else_happens(
    stock: Stock, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.error = StoreUnavailable("gone")
    stock.add(0, ["a"], START)
    await stock.close()
    (record,) = caplog.records
    assert (record.message, record.pages, record.cause) == ("leases_not_given_back", 1, "gone")  # type: ignore[attr-defined]

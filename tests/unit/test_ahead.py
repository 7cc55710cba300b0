"""Reading ahead: one piece, no more, and none once nobody takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from workers.ahead import ahead


class Source:
    """Numbers, each told of when it is asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked = [asyncio.Event() for _ in range(count + 1)]

    async def numbers(self) -> AsyncIterator[int]:
        for number in range(self.count):
            self.asked[number].set()
            yield number
        self.asked[self.count].set()


async def test_the_next_piece_is_read_while_one_is_used_and_no_other() -> None:
    source = Source(4)
    async with aclosing(ahead(source.numbers())) as pieces:
        async for piece in pieces:
            await asyncio.wait_for(source.asked[piece + 1].wait(), 5)
            assert not any(event.is_set() for event in source.asked[piece + 2 :])


async def test_every_piece_comes_once_in_order() -> None:
    assert [piece async for piece in ahead(Source(5).numbers())] == [0, 1, 2, 3, 4]


async def test_what_fails_to_be_read_fails_where_it_is_taken() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise LookupError

    pieces = ahead(broken())
    assert await anext(pieces) == 1
    with pytest.raises(LookupError):
        await anext(pieces)


async def test_nothing_is_read_any_more_once_nobody_takes_it() -> None:
    reading = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        yield 1
        reading.set()
        await asyncio.Event().wait()

    async with aclosing(ahead(endless())) as pieces:
        assert await anext(pieces) == 1
        await asyncio.wait_for(reading.wait(), 5)
    assert asyncio.all_tasks() == {asyncio.current_task()}

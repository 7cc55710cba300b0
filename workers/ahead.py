"""Reading ahead: the next piece is read while one is thought about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

Piece = TypeVar("Piece")


async def ahead(source: AsyncIterator[Piece]) -> AsyncGenerator[Piece, None]:
    """What the source gives, one piece ahead; to be closed, so that nothing is read that nobody takes."""
    coming = asyncio.create_task(_next(source))
    try:
        while (piece := await coming) is not None:
            coming = asyncio.create_task(_next(source))
            yield piece
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _next(source: AsyncIterator[Piece]) -> Piece | None:
    return await anext(source, None)

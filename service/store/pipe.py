"""Connections on which calls follow each other without waiting: replies come in the order of the commands.

The client library opens and greets them; then its per-command machinery is left aside, because a command
costs it more than the store needs to run one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import hiredis
from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

Argument = str | bytes | int | float
Command = tuple[Argument, ...]
LOST = "the connection was lost"
_NOT_YET = object()
_refusal = cast(Callable[[str], Exception], BaseParser.parse_error)  # MOVED is an error of its own kind
_pack = cast(Callable[[Command], bytes], hiredis.pack_command)  # typed there as taking one argument


class _Call:
    """Commands sent together, and the replies that have come."""

    __slots__ = ("deadline", "done", "replies", "wanted")

    def __init__(self, wanted: int, deadline: float, done: asyncio.Future[list[Any]]) -> None:
        self.wanted = wanted
        self.deadline = deadline
        self.done = done
        self.replies: list[Any] = []


class Pipe(asyncio.Protocol):
    """One connection, opened when it is first needed and again after it was lost."""

    def __init__(self, make: Callable[[], AbstractConnection], deadline_s: float) -> None:
        self._make = make
        self._deadline_s = deadline_s
        self._opening: asyncio.Task[None] | None = None
        self._connection: AbstractConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader()
        self._waiting: deque[_Call] = deque()
        self._watch: asyncio.TimerHandle | None = None

    @property
    def load(self) -> int:
        """Calls whose replies are awaited."""
        return len(self._waiting)

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """A reply per command, a refusal as the exception it is; one round trip.

        The client's ConnectionError or TimeoutError if no answer comes: then nobody knows what ran.
        """
        packed = b"".join([_pack(command) for command in commands])
        if self._transport is None:
            await self._open_once()
        if self._transport is None:
            raise RedisConnectionError(LOST)
        loop = asyncio.get_running_loop()
        call = _Call(len(commands), loop.time() + self._deadline_s, loop.create_future())
        self._waiting.append(call)
        if self._watch is None:
            self._watch = loop.call_at(call.deadline, self._check_deadline)
        self._transport.write(packed)
        return await call.done

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _NOT_YET:
            if isinstance(reply, hiredis.PushNotification):
                continue
            call = self._waiting[0]
            call.replies.append(reply)
            if len(call.replies) == call.wanted:
                self._waiting.popleft()
                if not call.done.done():  # else the caller hung up
                    call.done.set_result(call.replies)

    def connection_lost(self, _: Exception | None) -> None:
        self._fail(RedisConnectionError(LOST))

    async def close(self) -> None:
        """Whoever still waits is told that the connection was lost."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        self._fail(RedisConnectionError(LOST))
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

    async def _open_once(self) -> None:
        """Whoever comes while it is being opened shares the attempt, and its failure."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)
        connection = self._connection = self._make()
        await cast(Awaitable[None], connection.connect())  # type: ignore[no-untyped-call]
        assert connection._writer is not None
        transport = cast(asyncio.Transport, connection._writer.transport)
        transport.set_protocol(self)
        self._reader = hiredis.Reader(replyError=self._refused, notEnoughData=_NOT_YET)
        self._transport = None if transport.is_closing() else transport

    def _refused(self, text: str) -> Exception:
        refusal = _refusal(text)
        if isinstance(refusal, ReadOnlyError):  # it was demoted; its address may lead to another by now
            asyncio.get_running_loop().call_soon(self._fail, RedisConnectionError(LOST))
        return refusal

    def _check_deadline(self) -> None:
        """Replies come in order, so a server that answers nobody in time is told by the oldest call."""
        self._watch = None
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if self._waiting[0].deadline <= loop.time():
            self._fail(RedisTimeoutError("no answer in time"))
        else:
            self._watch = loop.call_at(self._waiting[0].deadline, self._check_deadline)

    def _fail(self, error: Exception) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._waiting:
            call = self._waiting.popleft()
            if not call.done.done():
                call.done.set_exception(error)


class Pipes:
    """A few pipes to one server: a call takes the one with the least on it."""

    def __init__(self, make: Callable[[], AbstractConnection], *, count: int, deadline_s: float) -> None:
        self._pipes = [Pipe(make, deadline_s) for _ in range(count)]

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """As `Pipe.send`."""
        return await min(self._pipes, key=_load).send(commands)

    async def close(self) -> None:
        for pipe in self._pipes:
            await pipe.close()


def _load(pipe: Pipe) -> int:
    return pipe.load

"""One server: a pool of connections, and commands sent down one of them.

The client's own retries are off: a repeated write is the caller's decision, made with an operation id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import redis.asyncio as redis_asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.errors import InvalidSetting, StoreUnavailable
from service.store.pipe import Command, Pipes

DEADLINE_S = 2.0
PIPES = 4
PIPED = ("FCALL", "HGETALL", "ZMSCORE")


class Node:
    """A Redis or Valkey server, alone or one of a cluster."""

    def __init__(self, url: str, *, connections: int) -> None:
        try:
            pool = redis_asyncio.BlockingConnectionPool.from_url(
                url,
                max_connections=connections,
                timeout=DEADLINE_S,
                socket_timeout=DEADLINE_S,
                socket_connect_timeout=DEADLINE_S,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise InvalidSetting(f"FRESHET_REDIS_URL: {error}") from error
        self._client = redis_asyncio.Redis(connection_pool=pool)
        self._pipes = Pipes(pool.make_connection, count=min(PIPES, connections), deadline_s=DEADLINE_S)
        self._execute = cast(Callable[..., Awaitable[Any]], self._client.execute_command)

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Replies in the order of the commands, a refusal as the exception it is; one round trip.

        Functions and reads of bins follow each other down shared pipes; other plain commands have a
        connection to themselves.
        StoreUnavailable if no answer comes: then nobody knows what ran.
        """
        try:
            if commands[0][0] in PIPED:
                return await self._pipes.send(commands)
            return await self._pipelined(commands) if len(commands) > 1 else [await self._one(commands[0])]
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            # Every pooled connection is likely stale: one failure should not become fifty.
            await self._client.connection_pool.disconnect(inuse_connections=False)
            raise StoreUnavailable(f"the store does not answer ({type(error).__name__})") from error
        except RedisError as error:
            raise StoreUnavailable(f"the store refused: {error}") from error

    async def everywhere(self, command: Command) -> list[Any]:
        """The command's reply of every server that holds data: this one."""
        return await self.send([command])

    async def close(self) -> None:
        await self._pipes.close()
        # The pool was handed in, so the client would leave it open.
        await self._client.aclose(close_connection_pool=True)

    async def _one(self, command: Command) -> Any:
        try:
            return await self._execute(*command)
        except ResponseError as refusal:
            if isinstance(refusal, ReadOnlyError):  # as in `Pipe`
                await self._client.connection_pool.disconnect(inuse_connections=False)
            return refusal

    async def _pipelined(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute(raise_on_error=False)

"""The one door to Redis: calls library functions, and translates foreign errors once.

The client's own retries are off: a repeated write is the caller's decision, made with an operation id.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import redis.asyncio as redis_asyncio
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service import telemetry
from service.errors import InvalidSetting, StoreUnavailable
from service.store.pipe import Argument, Pipes
from service.store.scripts import function_name, library

T = TypeVar("T")
Call = tuple[Sequence[str], Sequence[Argument]]  # keys of one shard, arguments
DEADLINE_S = 2.0
LOAD_TRIES = 3
CALLS_AT_ONCE = 8
PIPES = 4


class Server:
    """A Redis or Valkey server holding the state and the function library."""

    def __init__(self, url: str, *, connections: int = 50) -> None:
        if url.startswith("redis+cluster://"):
            raise InvalidSetting("a Redis Cluster is not supported yet: give one server's URL")
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
        self._execute = cast(Callable[..., Awaitable[Any]], self._client.execute_command)
        self._pipes = Pipes(pool.make_connection, count=min(PIPES, connections), deadline_s=DEADLINE_S)

    async def call(self, name: str, keys: Sequence[str], args: Sequence[Argument]) -> list[Any]:
        """Run a library function; loads the library where it is missing. One round trip."""
        (reply,) = await self.call_shards(name, [(keys, args)])
        return cast(list[Any], reply)

    async def call_shards(self, name: str, calls: Sequence[Call]) -> list[Any]:
        """Run a function once for each of several shards, all in one round trip; the replies in order.

        StoreUnavailable if one of them failed; the others have run all the same.
        """
        if not calls:
            return []
        function = function_name(name)
        commands = [("FCALL", function, len(keys), *keys, *args) for keys, args in calls]
        started = time.perf_counter()
        replies = await self._guard(self._pipes.send(commands))
        for _ in range(LOAD_TRIES):
            missing = [at for at, reply in enumerate(replies) if _lacks_library(reply)]
            if not missing:
                break
            await self.load()  # nothing of these calls ran, so making them again is safe
            again = await self._guard(self._pipes.send([commands[at] for at in missing]))
            for at, reply in zip(missing, again, strict=True):
                replies[at] = reply
        telemetry.REDIS_SECONDS.labels(name).observe(time.perf_counter() - started)
        for reply in replies:
            if isinstance(reply, RedisError):
                raise StoreUnavailable(f"the store refused: {reply}") from reply
        return replies

    async def call_many(
        self, name: str, keys: Sequence[str], calls: Sequence[Sequence[Argument]]
    ) -> list[Any]:
        """Run a function that is safe to repeat with several arguments, a few per round trip.

        A server runs what one client sent at once before it listens to another, so the groups are small.
        """
        replies: list[Any] = []
        for at in range(0, len(calls), CALLS_AT_ONCE):
            replies += await self._call_some(name, keys, calls[at : at + CALLS_AT_ONCE])
        return replies

    async def _call_some(
        self, name: str, keys: Sequence[str], calls: Sequence[Sequence[Argument]]
    ) -> list[Any]:
        return await self.call_shards(name, [(keys, args) for args in calls])

    async def execute(self, *command: Argument) -> Any:
        """Run a plain command."""
        return await self._guard(self._execute(*command))

    def pipeline(self) -> Pipeline:
        return self._client.pipeline(transaction=False)

    async def run(self, pipeline: Pipeline) -> list[Any]:
        """Send a pipeline in one round trip."""
        return cast(list[Any], await self._guard(pipeline.execute()))

    async def load(self) -> None:
        """Put the function library on the server; a no-op for the same release."""
        await self._guard(self._client.function_load(library()[1], replace=True))

    async def close(self) -> None:
        await self._pipes.close()
        # The pool was handed in, so the client would leave it open.
        await self._client.aclose(close_connection_pool=True)

    async def _guard(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            # Every pooled connection is likely stale: one failure should not become fifty.
            await self._client.connection_pool.disconnect(inuse_connections=False)
            raise StoreUnavailable(f"the store does not answer ({type(error).__name__})") from error
        except RedisError as error:
            raise StoreUnavailable(f"the store refused: {error}") from error


def _lacks_library(reply: Any) -> bool:
    return isinstance(reply, RedisError) and "unction not found" in str(reply)

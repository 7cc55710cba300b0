"""The one door to the store: calls library functions, and translates foreign errors once.

Behind it stands one server (`node.py`) or a cluster (`cluster.py`); nobody outside needs to know which.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from service import telemetry
from service.errors import StoreUnavailable
from service.store.cluster import Cluster
from service.store.node import Node
from service.store.pipe import Argument, Command
from service.store.scripts import function_name, library

log = logging.getLogger("freshet.store")
LOAD_TRIES = 3
CALLS_AT_ONCE = 8
Call = tuple[Sequence[str], Sequence[Argument]]  # keys of one shard, arguments


class Pipeline:
    """Plain commands on any keys, to be sent together; all of them safe to repeat."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def execute_command(self, *command: Argument) -> None:
        self.commands.append(command)


class Server:
    """The Redis or Valkey server, or cluster of them, holding the state and the function library."""

    def __init__(self, url: str, *, connections: int = 50) -> None:
        kind = Cluster if Cluster.is_meant_by(url) else Node
        self._link: Cluster | Node = kind(url, connections=connections)

    @property
    def is_cluster(self) -> bool:
        """Whether shards may lie on different servers, so that no script can see two of them."""
        return isinstance(self._link, Cluster)

    async def call(self, name: str, keys: Sequence[str], args: Sequence[Argument]) -> list[Any]:
        """Run a library function; loads the library where it is missing. One round trip."""
        (reply,) = await self.call_shards(name, [(keys, args)])
        return reply

    async def call_shards(self, name: str, calls: Sequence[Call]) -> list[list[Any]]:
        """Run a function on several shards side by side; one round trip per server.

        StoreUnavailable if one of them failed; the others have run all the same.
        """
        return _checked(await self.call_each(name, calls))

    async def call_each(self, name: str, calls: Sequence[Call]) -> list[Any]:
        """As `call_shards`, but what went wrong stands in the place of the reply."""
        return await self._run(name, [_fcall(name, keys, args) for keys, args in calls])

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
        commands = [_fcall(name, keys, args) for args in calls]
        started = time.perf_counter()
        replies = await self._send_loaded(commands)
        telemetry.REDIS_SECONDS.labels(name).observe((time.perf_counter() - started) / len(calls))
        return _checked(replies)

    async def execute(self, *command: Argument) -> Any:
        """Run a plain command on the server that has its key."""
        (reply,) = _checked(await self._send([command]))
        return reply

    def pipeline(self) -> Pipeline:
        return Pipeline()

    async def run(self, pipeline: Pipeline, *, partly: bool = False) -> list[Any]:
        """Send a pipeline; one round trip, on a cluster one per server side by side.

        Partly: None for what a server of the cluster was asked that does not answer.
        """
        replies = await self._send(pipeline.commands)
        if partly:
            replies = [None if isinstance(reply, StoreUnavailable) else reply for reply in replies]
        return _checked(replies)

    async def everywhere(self, *command: Argument) -> list[Any]:
        """The reply of every server that holds data to a command without keys."""
        return _checked(await self._link.everywhere(command))

    async def load(self) -> None:
        """Put the function library on every server; a no-op for the same release."""
        _checked(await self._load())

    async def close(self) -> None:
        await self._link.close()

    async def _run(self, name: str, commands: Sequence[Command]) -> list[Any]:
        started = time.perf_counter()
        try:
            return await self._send_loaded(commands)
        finally:
            telemetry.REDIS_SECONDS.labels(name).observe(time.perf_counter() - started)

    async def _send(self, commands: Sequence[Command]) -> list[Any]:
        return await self._link.send(commands) if commands else []

    async def _load(self) -> list[Any]:
        return await self._link.everywhere(("FUNCTION", "LOAD", "REPLACE", library()[1]))

    async def _send_loaded(self, commands: Sequence[Command]) -> list[Any]:
        """Send function calls; where the library is missing nothing ran, so it is loaded and they repeat."""
        replies = await self._send(commands)
        for _ in range(LOAD_TRIES):
            missing = [at for at, reply in enumerate(replies) if _lacks_library(reply)]
            if not missing:
                break
            await self._load()  # where it cannot be loaded the calls find out themselves
            again = await self._send([commands[at] for at in missing])
            for at, reply in zip(missing, again, strict=True):
                replies[at] = reply
        return replies


def _fcall(name: str, keys: Sequence[str], args: Sequence[Argument]) -> Command:
    return "FCALL", function_name(name), len(keys), *keys, *args


def _lacks_library(reply: Any) -> bool:
    return isinstance(reply, RedisError) and "unction not found" in str(reply)


def _checked(replies: list[Any]) -> list[Any]:
    """The replies, if all are; else what went wrong first."""
    for reply in replies:
        if isinstance(reply, StoreUnavailable):
            raise reply
        if isinstance(reply, RedisError):
            raise StoreUnavailable(f"the store refused: {reply}") from reply
    return replies

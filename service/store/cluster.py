"""A cluster of servers: each command goes to the primary that has its key's slot.

A command that was not run, because its slot is elsewhere or on its way there, is sent again until the
deadline; one that may have run never is. While a slot moves key by key (ASK), its shard waits at its old
home: a script reads and writes many keys of its shard, and half of them somewhere else would tear it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import lru_cache
from typing import Any

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

from service.errors import InvalidSetting, StoreUnavailable
from service.store.node import DEADLINE_S, Node
from service.store.pipe import Command

SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
NOT_RUN = (AskError, TryAgainError, ClusterDownError)  # AskError includes MovedError
PAUSE_S = 0.02  # before a command is sent again
ASK_AGAIN_S = 0.2  # least time between two questions who has which slot
_KEY_AT = {"FCALL": 3, "XGROUP": 2, "OBJECT": 2}


class Cluster:
    """The primaries of a cluster, found by asking any node of it."""

    def __init__(self, url: str, *, connections: int) -> None:
        self._scheme, self._login, seeds, self._options = _parse(url)
        self._connections = connections
        self._nodes: dict[str, Node] = {}  # by address; one that lost its slots may get them back
        self._owners: list[str | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._silent: set[str] = set()  # addresses that did not answer when last asked
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = float("-inf")
        self._trouble = "no server of the cluster answers"
        for seed in seeds:
            self._node(seed)

    @staticmethod
    def is_meant_by(url: str) -> bool:
        return url.partition("://")[0] in SCHEMES

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Replies in the order of the commands; a refusal or a silent server in the place of the reply.

        One round trip per primary, side by side, while slots stay where they are.
        """
        slots = [_slot(_key(command)) for command in commands]
        replies: list[Any] = [None] * len(commands)
        waiting = await self._send_once(commands, slots, range(len(commands)), replies)
        if waiting:
            await self._send_again(commands, slots, waiting, replies)
        return replies

    async def _send_again(
        self, commands: Sequence[Command], slots: list[int], waiting: list[int], replies: list[Any]
    ) -> None:
        """Until everything ran or the deadline has passed; at once where a slot is known to have moved."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DEADLINE_S
        has_moved = all(isinstance(replies[at], MovedError) for at in waiting)
        while waiting and loop.time() < deadline:
            await asyncio.sleep(0 if has_moved else PAUSE_S)
            has_moved = False
            waiting = await self._send_once(commands, slots, waiting, replies)

    async def _send_once(
        self, commands: Sequence[Command], slots: list[int], waiting: Sequence[int], replies: list[Any]
    ) -> list[int]:
        """Send each primary its part; which commands were not run."""
        groups = self._by_owner(slots, waiting)
        if None in groups:
            await self._refresh_once()
            groups = self._by_owner(slots, waiting)
        await _side_by_side([self._send_to(a, commands, group, replies) for a, group in groups.items()])
        return [at for at in waiting if isinstance(replies[at], NOT_RUN)]

    def _by_owner(self, slots: list[int], waiting: Sequence[int]) -> dict[str | None, list[int]]:
        groups: dict[str | None, list[int]] = {}
        for at in waiting:
            groups.setdefault(self._owners[slots[at]], []).append(at)
        return groups

    async def everywhere(self, command: Command) -> list[Any]:
        """The reply of every primary, or what went wrong in its place."""
        if all(owner is None for owner in self._owners):
            await self._refresh_once()
        addresses = sorted({owner for owner in self._owners if owner is not None})
        replies: list[Any] = [None] * len(addresses) or [StoreUnavailable(self._trouble)]
        commands = [command] * len(addresses)
        await _side_by_side([self._send_to(a, commands, [at], replies) for at, a in enumerate(addresses)])
        return replies

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])
        for node in self._nodes.values():
            await node.close()

    async def _send_to(
        self, address: str | None, commands: Sequence[Command], group: list[int], replies: list[Any]
    ) -> None:
        """Send one primary its part, and learn from what it answers."""
        if address is None:
            found: list[Any] = [StoreUnavailable(self._trouble)] * len(group)
        else:
            try:
                found = await self._node(address).send([commands[at] for at in group])
                self._silent.discard(address)
            except StoreUnavailable as error:
                found = [error] * len(group)
                self._silent.add(address)
                self._refresh_soon()
        for at, reply in zip(group, found, strict=True):
            replies[at] = reply
            if isinstance(reply, NOT_RUN):
                self._learn_from(reply, address or "")

    def _learn_from(self, refusal: Exception, asked: str) -> None:
        if isinstance(refusal, MovedError):
            # An empty host means the one that was asked.
            self._owners[refusal.slot_id] = _address(refusal.host or _host(asked), refusal.port)
        elif isinstance(refusal, ClusterDownError):
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        """Ask anew who has which slot, in the background: other shards' calls go on meanwhile."""
        is_asking = self._refreshing is not None and not self._refreshing.done()
        if not is_asking and asyncio.get_running_loop().time() - self._refreshed_at > ASK_AGAIN_S:
            self._refreshing = asyncio.create_task(self._refresh())

    async def _refresh_once(self) -> None:
        """Ask who has which slot; whoever else needs to know waits for the same answer."""
        self._refresh_soon()
        if self._refreshing is not None:
            await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        """Take the word of the first node that knows of shards; where it is behind, MOVED corrects it."""
        for address in sorted(self._nodes, key=lambda a: a in self._silent):
            try:
                (ranges,) = await self._nodes[address].send([("CLUSTER", "SLOTS")])
            except StoreUnavailable:
                self._silent.add(address)
                continue
            if isinstance(ranges, list) and ranges:
                self._owners = _owners(ranges, asked=_host(address))
                self._trouble = "no server of the cluster has this shard"
                break
            # One without shards knows no others: it has left, or has yet to join.
            self._trouble = (
                f"the store refused: {ranges}" if ranges else "no server of the cluster has shards"
            )
        self._refreshed_at = asyncio.get_running_loop().time()

    def _node(self, address: str) -> Node:
        if address not in self._nodes:
            url = f"{self._scheme}://{self._login}{address}{self._options}"
            self._nodes[address] = Node(url, connections=self._connections)
        return self._nodes[address]


async def _side_by_side(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    if len(work) == 1:
        await work[0]  # a task for it would cost more than the call
    else:
        await asyncio.gather(*work)


def _parse(url: str) -> tuple[str, str, list[str], str]:
    """Scheme of one node, login with its `@`, addresses, and what follows them, query included."""
    scheme, _, rest = url.partition("://")
    places, mark, options = rest.partition("?")
    login, at, hosts = places.rstrip("/").rpartition("@")
    seeds = [seed if seed.rpartition("]")[2].count(":") else f"{seed}:6379" for seed in hosts.split(",")]
    if "/" in hosts or not all(_host(seed) and seed.rpartition(":")[2].isdigit() for seed in seeds):
        raise InvalidSetting("FRESHET_REDIS_URL: a cluster is redis+cluster://host:port,host:port")
    return SCHEMES[scheme], login + at, seeds, mark + options


def _key(command: Command) -> bytes:
    """The key that decides where a command goes; commands without one go anywhere, but always there."""
    at = command.index("STREAMS") + 1 if command[0] == "XREADGROUP" else _KEY_AT.get(str(command[0]), 1)
    key = command[at] if len(command) > at else b""
    return key if isinstance(key, bytes) else str(key).encode()


_slot = lru_cache(maxsize=4096)(key_slot)  # shards' prefixes come again and again


def _owners(ranges: list[Any], *, asked: str) -> list[str | None]:
    """The primary's address for each slot, from the answer to CLUSTER SLOTS."""
    owners: list[str | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
    for first, last, (host, port, *_), *_ in ranges:
        address = _address(host.decode() if host else asked, port)
        owners[first : last + 1] = [address] * (last + 1 - first)
    return owners


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _host(address: str) -> str:
    return address.rpartition(":")[0]

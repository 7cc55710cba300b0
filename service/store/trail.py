"""Who changed what, as scripts noted it: beside the control hash, and in each shard for its hosts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from service.store import keys
from service.store.connection import Server
from service.store.wire import pairs

Fields = dict[str, Any]  # by the names scripts have for them


@dataclass(frozen=True, slots=True)
class Change:
    """One change: only of fields that changed, as they were and as they are."""

    at_ms: float
    actor: str
    what: str  # "bandwidth", "policy", "source", "host" or "key"
    name: str  # of the host, source or key
    old: Fields
    new: Fields


async def last_changes(server: Server, shards: int, most: int) -> list[Change]:
    """The last changes, latest first; one round trip."""
    pipeline = server.pipeline()
    for place in (keys.CONTROL, *keys.shard_prefixes(shards)):
        pipeline.execute_command("XREVRANGE", keys.audit(place), "+", "-", "COUNT", most)
    found = [_change(fields) for entries in await server.run(pipeline) for _, fields in entries]
    return sorted(found, key=lambda change: -change.at_ms)[:most]


def _change(fields: Any) -> Change:
    found = {field.decode(): value.decode() for field, value in pairs(fields)}
    old, new = json.loads(found["old"]), json.loads(found["new"])
    return Change(float(found["at"]), found["actor"], found["what"], found["name"], old, new)

"""Names of keys.

Every key of a shard starts with its prefix, whose hash tag puts all of them into one cluster slot: scripts
touch one shard and derive further keys from the prefix. Names hold hashes, never hosts or URLs. The full
list of keys stands at the top of `lua/common.lua`.
"""

from __future__ import annotations

from functools import lru_cache

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

CONTROL = "f:{control}"


@lru_cache(maxsize=64)
def shard_prefixes(shards: int) -> tuple[str, ...]:
    """One prefix per shard, with tags chosen so that shards spread evenly over the cluster's slots."""
    return tuple(_prefix(shard, shards) for shard in range(shards))


def _prefix(shard: int, shards: int) -> str:
    low = shard * REDIS_CLUSTER_HASH_SLOTS // shards
    high = (shard + 1) * REDIS_CLUSTER_HASH_SLOTS // shards
    suffix = 0
    while not low <= key_slot(f"{shard}.{suffix}".encode()) < high:
        suffix += 1
    return f"f:{{{shard}.{suffix}}}"


def meta(prefix: str) -> str:
    return f"{prefix}:meta"


def hosts(prefix: str) -> str:
    return f"{prefix}:hosts"


def leases(prefix: str) -> str:
    return f"{prefix}:leases"


def tokens(prefix: str) -> str:
    return f"{prefix}:tokens"


def sample(prefix: str) -> str:
    return f"{prefix}:sample"


def parked(prefix: str) -> str:
    return f"{prefix}:parked"


def host(prefix: str, host_id: str) -> str:
    return f"{prefix}:h:{host_id}"


def records(prefix: str, host_id: str, bin_number: int) -> str:
    return f"{prefix}:r:{host_id}:{bin_number}"


def anchors(prefix: str, host_id: str, bin_number: int) -> str:
    return f"{prefix}:a:{host_id}:{bin_number}"


def evidence(prefix: str, host_id: str, bin_number: int) -> str:
    return f"{prefix}:e:{host_id}:{bin_number}"


def requests(prefix: str, host_id: str, bin_number: int) -> str:
    return f"{prefix}:q:{host_id}:{bin_number}"


def counted(prefix: str) -> str:
    return f"{prefix}:counted"


def sources(prefix: str) -> str:
    return f"{prefix}:sources"


def observed(prefix: str) -> str:
    return f"{prefix}:observed"


def dirty(prefix: str) -> str:
    return f"{prefix}:dirty"


def audit(place: str) -> str:
    """Of the control hash, or of a shard."""
    return f"{place}:audit"


def bin_of(page_id: int, bins: int) -> int:
    """The bin of a page among its host's, as `bin_of` in `lua/common.lua` has it."""
    level = 1 << (bins.bit_length() - 1)
    number = page_id % (level * 2)
    return number if number < bins else page_id % level


def dues(prefix: str, host_id: str, bin_number: int) -> str:
    return f"{prefix}:d:{host_id}:{bin_number}"

"""A page's record as the scripts pack it: see HEAD in `lua/common.lua`.

Workers read a bin's records as one numpy array; the API reads one page's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain import Model

RANKING = np.dtype(
    [
        ("interval_s", "<f4"),
        ("lead", "<f4"),
        ("ceiling", "<f4"),
        ("base", "<f4"),
        ("slope", "<f4"),
        ("near", "<f4"),
        ("far", "<f4"),
    ]
)
MODEL = np.dtype(
    [
        ("importance", "<f4"),
        ("silent_rate", "<f4"),
        ("signal_weight", "<f4"),
        ("signal_rate", "<f4"),
    ]
)
HEAD = np.dtype(
    [
        ("flags", "u1"),
        ("version", "u1"),
        ("failures", "u1"),
        ("gone", "u1"),
        ("ranking", RANKING),
        ("model", MODEL),
        ("crawled_at", "V6"),
        ("token", "V6"),
        ("accepted", "<u4"),
        ("result", "u1"),
        ("signals", "<u2"),
        ("expiries", "u1"),
        ("digest", "V8"),
        ("modified", "<u4"),
    ]
)
LEASED, PARKED, HELD, FIXED, CRAWLED = 1, 2, 4, 8, 16
RESULTS = {
    0: None,
    1: "changed",
    2: "unchanged",
    3: "failed",
    4: "gone",
    5: "busy",
    6: "crawled",  # fetched, but nobody said whether it had changed
}
NEVER_CRAWLED_BELOW, DORMANT_ABOVE = -1e15, 3e15


@dataclass(frozen=True, slots=True)
class Record:
    """One page's record, unpacked."""

    flags: int
    version: int
    failures: int
    interval_s: float
    model: Model
    crawled_at_ms: int
    signals: int
    result: str | None
    modified: int
    sources: dict[int, int]
    etag: str
    path: str


def read_record(raw: bytes) -> Record:
    """Unpack one record."""
    head = read_heads([raw])
    sources, etag, path = _tail(raw)
    row = head[0]
    return Record(
        flags=int(row["flags"]),
        version=int(row["version"]),
        failures=int(row["failures"]),
        interval_s=float(row["ranking"]["interval_s"]),
        model=model_of(head),
        crawled_at_ms=int.from_bytes(row["crawled_at"].tobytes(), "little"),
        signals=int(row["signals"]),
        result=RESULTS[int(row["result"])],
        modified=int(row["modified"]),
        sources=sources,
        etag=etag,
        path=path,
    )


def read_heads(records: Sequence[bytes]) -> NDArray[Any]:
    """The fixed part of many records as one structured array."""
    size = HEAD.itemsize
    return np.frombuffer(b"".join([raw[:size] for raw in records]), dtype=HEAD)


def model_of(heads: NDArray[Any]) -> Model:
    """The models of many records, in double precision."""
    stored = heads["model"]
    return Model(
        importance=stored["importance"].astype(np.float64),
        silent_rate=stored["silent_rate"].astype(np.float64),
        signal_weight=stored["signal_weight"].astype(np.float64),
        signal_rate=stored["signal_rate"].astype(np.float64),
    )


def pack_rows(rows: NDArray[Any]) -> list[bytes]:
    """Each row of a packed structured array as bytes."""
    raw, size = rows.tobytes(), rows.dtype.itemsize
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def _tail(raw: bytes) -> tuple[dict[int, int], str, str]:
    at = HEAD.itemsize
    pairs = raw[at + 1 : at + 1 + 2 * raw[at]]
    at += 1 + 2 * raw[at]
    etag = raw[at + 1 : at + 1 + raw[at]].decode("latin-1")
    path = raw[at + 1 + raw[at] :].decode()
    return dict(zip(pairs[::2], pairs[1::2], strict=True)), etag, path

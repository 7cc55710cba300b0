"""A page's record and its readers' requests as the scripts pack them: see `lua/common.lua`.

Workers read a bin's records as one numpy array; the API reads one page's.
"""

from __future__ import annotations

import math
import struct
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
        ("tempo", "<f4"),
        ("credit_s", "<f4"),
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
        ("digest", "V3"),
        ("modified", "<u4"),
        ("floor", "<f4"),
    ]
)
SAMPLED = np.dtype([("model", MODEL)])  # one page of a sample
SAMPLE_HEAD = 8  # bytes before the first: how many pages the sample stands for
NEW_HEAD = np.dtype([("head", HEAD), ("tail", "V2")])  # the tail of a new page: no signals, no etag
LEASED, PARKED, HELD, FIXED, CRAWLED, STARTED = 1, 2, 4, 8, 16, 32
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
NEVER_CRAWLED = -4e15
DAY_S = 86400.0
LEAST_WATCHED_MS = 3_600_000.0  # what was watched for less than an hour says little of a day


@dataclass(frozen=True, slots=True)
class Record:
    """One page's record, unpacked."""

    flags: int
    version: int
    failures: int
    gone: int  # answers of 404 or 410 in a row
    expiries: int  # leases that ran out in a row without an outcome
    interval_s: float
    model: Model
    crawled_at_ms: int
    signals: int
    result: str | None
    modified: int
    min_crawls_per_day: float
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
        gone=int(row["gone"]),
        expiries=int(row["expiries"]),
        interval_s=float(row["ranking"]["interval_s"]),
        model=model_of(head),
        crawled_at_ms=int.from_bytes(row["crawled_at"].tobytes(), "little"),
        signals=int(row["signals"]),
        result=RESULTS[int(row["result"])],
        modified=int(row["modified"]),
        min_crawls_per_day=float(row["floor"]),
        sources=sources,
        etag=etag,
        path=path,
    )


def read_heads(records: Sequence[bytes]) -> NDArray[Any]:
    """The fixed part of many records as one structured array."""
    size = HEAD.itemsize
    return np.frombuffer(b"".join([raw[:size] for raw in records]), dtype=HEAD)


def crawled_at_ms(heads: NDArray[Any]) -> NDArray[np.float64]:
    """When each page was last crawled; six-byte integers have no numpy type of their own."""
    padded = np.zeros((len(heads), 8), dtype=np.uint8)
    padded[:, :6] = np.frombuffer(heads["crawled_at"].tobytes(), dtype=np.uint8).reshape(-1, 6)
    return padded.view("<u8").ravel().astype(np.float64)


def model_of(heads: NDArray[Any]) -> Model:
    """The models of many records, in double precision."""
    stored = heads["model"]
    return Model(
        importance=stored["importance"].astype(np.float64),
        silent_rate=stored["silent_rate"].astype(np.float64),
        signal_weight=stored["signal_weight"].astype(np.float64),
        signal_rate=stored["signal_rate"].astype(np.float64),
    )


def pack_sample(pages: int, models: bytes) -> bytes:
    """Models of some pages, and how many pages these stand for."""
    return pages.to_bytes(SAMPLE_HEAD, "little") + models


def read_samples(raws: Sequence[bytes], most: int) -> tuple[Model, NDArray[np.float64]]:
    """The models of several samples, about so many in all, and how many pages each of them stands for."""
    each = -(-most // len(raws))
    rows = [np.frombuffer(raw, dtype=SAMPLED, offset=SAMPLE_HEAD)[:each] for raw in raws]
    counts = [
        np.full(len(part), int.from_bytes(raw[:SAMPLE_HEAD], "little") / max(1, len(part)))
        for raw, part in zip(raws, rows, strict=True)
    ]
    return model_of(np.concatenate(rows)), np.concatenate(counts)


def pack_rows(rows: NDArray[Any]) -> list[bytes]:
    """Each row of a packed structured array as bytes."""
    raw, size = rows.tobytes(), rows.dtype.itemsize
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def new_heads(
    ranking: NDArray[Any],
    model: NDArray[Any],
    *,
    flags: Sequence[int] | NDArray[Any],
    floors: Sequence[float] | NDArray[Any],
    versions: NDArray[Any] | int = 0,
) -> list[bytes]:
    """Records of pages never crawled, up to their paths: no signals counted, no etag."""
    heads = np.zeros(len(flags), dtype=NEW_HEAD)
    head = heads["head"]
    head["flags"], head["version"], head["floor"] = flags, versions, floors
    head["ranking"], head["model"] = ranking, model
    return pack_rows(heads)


def first_dues(model: NDArray[Any]) -> list[str]:
    """Due scores of pages never crawled, as `due_score` in `lua/common.lua` has them: by importance."""
    scores = NEVER_CRAWLED - np.floor(np.log(model["importance"].astype(np.float64)) * 1e9)
    return list(map(str, scores.astype(np.int64).tolist()))


def request_rate_per_day(raw: bytes, now_ms: float, half_life_s: float) -> float:
    """Requests per day of a page by what `requests.lua` keeps: discounted count over discounted time watched.

    With half-life h a request of age t weighs 2^(−t/h), so a steady rate r watched for T is counted as
    r · h/ln 2 · (1 − 2^(−T/h)). T is taken as an hour at least.
    """
    count, first_at_ms, updated_at_ms = struct.unpack("<ddd", raw)
    decay_ms = half_life_s * 1000 / math.log(2)
    watched_ms = max(LEAST_WATCHED_MS, now_ms - first_at_ms)
    left = math.exp(-max(0.0, now_ms - updated_at_ms) / decay_ms)
    weight_ms = -math.expm1(-watched_ms / decay_ms) * decay_ms
    return float(count * left / weight_ms * DAY_S * 1000)


def read_sources(raw: bytes) -> dict[int, int]:
    """Signals since the last crawl, by source number."""
    at = HEAD.itemsize
    pairs = raw[at + 1 : at + 1 + 2 * raw[at]]
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _tail(raw: bytes) -> tuple[dict[int, int], str, str]:
    at = HEAD.itemsize + 1 + 2 * raw[HEAD.itemsize]
    etag = raw[at + 1 : at + 1 + raw[at]].decode("latin-1")
    path = raw[at + 1 + raw[at] :].decode()
    return read_sources(raw), etag, path

"""Pages are written from rows byte for byte as leases read from them are."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from service.api.instants import LATEST, render_instant, render_optional
from service.api.next import answer_of
from service.store.rows import lease_from

LATEST_MS = int(LATEST) * 1000
MILLISECONDS = st.integers(0, LATEST_MS) | st.floats(0, LATEST_MS)
AMOUNTS = st.integers(0, 2**53) | st.floats(0, 1e300)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ['"', "\\", "\x00\x1f\x7f", "</script>", "\u2028", "\U0001f600", '"\\ \'"']
)


@st.composite
def rows(draw: st.DrawFn) -> list[Any]:
    elapsed_ms = draw(st.just(-1) | AMOUNTS)
    return [
        int(elapsed_ms >= 0),
        draw(st.text("abcXYZ09-_", min_size=11, max_size=11)),
        draw(st.integers(0, 2**31 - 1)),
        draw(st.integers(1, 2**48 - 1)),
        draw(TEXTS),
        draw(st.sampled_from("sh")) + "/" + draw(TEXTS),
        draw(MILLISECONDS),
        draw(MILLISECONDS),
        draw(AMOUNTS),
        elapsed_ms,
        draw(st.floats(0, 1) | st.sampled_from([0, 1, 1e-300])),
        draw(st.integers(0, 2**31)),
        draw(MILLISECONDS),
        draw(st.just("") | TEXTS),
        draw(st.just("") | st.integers(0, int(LATEST)) | st.integers(0, int(LATEST)).map(str)),
        b"",
    ]


def written(row: list[Any]) -> dict[str, Any]:
    """A page field by field, from its lease."""
    lease = lease_from(row)
    return {
        "url": lease.url,
        "host": lease.host,
        "lease": lease.lease,
        "lease_expires_at": render_instant(lease.lease_expires_at),
        "not_before": render_instant(lease.not_before),
        "value": lease.value,
        "freshness": lease.freshness,
        "effective_elapsed_s": lease.effective_elapsed_s,
        "signals": lease.signals,
        "last_crawled_at": render_optional(lease.last_crawled_at),
        "etag": lease.etag,
        "last_modified": render_optional(lease.last_modified),
    }


@given(given=st.lists(rows(), min_size=1, max_size=4))
@example(given=[[1, "abcdefghijk", 0, 1, "a", "s/", 999.9996, 0, 1e16, 0, 0, 0, 59_999.9999, '"', "0", b""]])
def test_a_row_is_written_as_its_lease_is(given: list[list[Any]]) -> None:
    assert answer_of(given).body == msgspec.json.encode({"pages": [written(row) for row in given]})

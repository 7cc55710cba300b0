"""GET /admin/audit: who changed what, when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service.api.auth import allow
from service.api.body import json_answer
from service.api.deps import frontier_of
from service.api.instants import render_ms
from service.api.openapi import documented
from service.api.operator_schemas import AuditAnswer, ChangeOut
from service.store.trail import Change, Fields

router = APIRouter(prefix="/admin/audit", tags=["operators"])
MOST = 1000


@router.get(
    "",
    summary="Who changed what, when",
    dependencies=[allow("reader")],
    **documented(answer=AuditAnswer),
)
async def get_audit(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MOST, description="changes at most")] = 100,
) -> Response:
    """Changes of bandwidth, policy, sources, hosts and keys, the latest first: what changed, as it was and as
    it is. `actor` is the name and id of the key the change came with, null where none was needed. The last
    thousand or more are kept.
    """
    changes = await frontier_of(request).last_changes(limit)
    return json_answer(AuditAnswer([_row(change) for change in changes]))


def _row(change: Change) -> ChangeOut:
    return ChangeOut(
        render_ms(change.at_ms),
        change.actor or None,
        change.what,
        change.name or None,
        _plain(change.old),
        _plain(change.new),
    )


def _optional_s(ms: str | None) -> float | None:
    return float(ms) / 1000 if ms else None


# A script's name for a field: what it is called elsewhere in this API, and its value there.
_SHOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "rate": ("crawls_per_second", float),
    "explore": ("explore", float),
    "floor": ("min_crawls_per_day", float),
    "delay_ms": ("min_delay_s", _optional_s),
    "late_ms": ("delay_s", _optional_s),
    "gap_ms": ("max_crawls_per_second", lambda ms: 1000 / float(ms) if float(ms) else None),
    "busy_until": ("rests_until", lambda ms: render_ms(float(ms)) if float(ms) else None),
    "paused_until": ("paused_until", lambda ms: render_ms(float(ms)) if float(ms) else None),
}


def _plain(fields: Fields) -> Fields:
    shown = {}
    for field, value in fields.items():
        name, render = _SHOWN.get(field, (field, lambda same: same))
        shown[name] = render(value)
    return shown

"""What operators turn and read: bandwidth, hosts, policy, status."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.address import Address, parse_host
from service.api.auth import actor_of, allow
from service.api.body import decode, is_number, json_answer
from service.api.deps import frontier_of
from service.api.instants import InvalidInstant, parse_instant, render_optional
from service.api.openapi import documented
from service.api.operator_schemas import BandwidthBody, HostAnswer, HostInput, PolicyAnswer, PolicyInput
from service.api.problems import Problem, invalid
from service.domain import Bandwidth, Policy
from service.errors import InvalidUrl, VersionMoved
from service.policy.valuation import why_not
from service.settings import LEAST_RATE
from service.status import gather_status

router = APIRouter(prefix="/admin", tags=["operators"])


@router.get(
    "/bandwidth",
    summary="Crawls per second allowed",
    dependencies=[allow("reader")],
    **documented(answer=BandwidthBody),
)
async def get_bandwidth(request: Request) -> Response:
    """The `ETag` is the version; send it back as `If-Match` to prevent lost updates."""
    return _bandwidth(await frontier_of(request).control.bandwidth())


@router.put(
    "/bandwidth", summary="Turn the dial", dependencies=[allow()], **documented(BandwidthBody, BandwidthBody)
)
async def put_bandwidth(request: Request) -> Response:
    """Obeyed from the next slot on; 0 pauses. 412 if `If-Match` is not the current version."""
    body = await decode(request, BandwidthBody)
    if 0 < body.crawls_per_second < LEAST_RATE:
        raise invalid(["body", "crawls_per_second"], f"must be 0, or at least {LEAST_RATE:g}")
    expected = _expected(request.headers.get("if-match"))
    frontier, actor = frontier_of(request), actor_of(request)
    return _bandwidth(await frontier.set_bandwidth(body.crawls_per_second, expected, actor))


@router.get(
    "/hosts/{host}",
    summary="Rules and state of a host",
    dependencies=[allow("reader")],
    **documented(answer=HostAnswer),
)
async def get_host(request: Request, host: str) -> Response:
    """404 for a host that has no page and no rule."""
    return await _host(request, _address(host))


@router.put(
    "/hosts/{host}",
    summary="Set rules for a host",
    dependencies=[allow()],
    **documented(HostInput, HostAnswer),
)
async def put_host(request: Request, host: str) -> Response:
    """From the answer on no page of the host is handed out against the new rules."""
    address = _address(host)
    changes = _changes(await decode(request, HostInput))
    await frontier_of(request).set_host(address, changes, actor_of(request))
    return await _host(request, address)


@router.get(
    "/policy",
    summary="What is aimed at, and how",
    dependencies=[allow("reader")],
    **documented(answer=PolicyAnswer),
)
async def get_policy(request: Request) -> Response:
    """The `ETag` is the version; send it back as `If-Match` to prevent lost updates."""
    return _policy(await frontier_of(request).control.policy())


@router.put(
    "/policy",
    summary="Choose how pages are ranked",
    dependencies=[allow()],
    **documented(PolicyInput, PolicyAnswer),
)
async def put_policy(request: Request) -> Response:
    """What is left out stays. 412 if `If-Match` is not the current version. Another `policy` or `objective`
    holds from the next sweep of the workers on, within seconds; leases, history and what was learned stay.
    """
    body = await decode(request, PolicyInput)
    changes = {k: v for k, v in msgspec.structs.asdict(body).items() if v is not msgspec.UNSET}
    control, actor = frontier_of(request).control, actor_of(request)
    expected = _expected(request.headers.get("if-match"))
    if "policy" not in changes and "objective" not in changes:
        return _policy(await control.set_policy(**changes, expected=expected, actor=actor))
    while True:
        current = await control.policy()
        _refuse_mismatch(changes, current)
        try:
            version = current.version if expected is None else expected
            return _policy(await control.set_policy(**changes, expected=version, actor=actor))
        except VersionMoved:  # what the choice was checked against has changed meanwhile
            if expected is not None:
                raise


def _refuse_mismatch(changes: dict[str, Any], current: Policy) -> None:
    """422 if what is chosen does not fit what stays."""
    fault = why_not(changes.get("policy", current.policy), changes.get("objective", current.objective))
    if fault is not None:
        field, why = fault
        raise invalid(["body", field], why)


@router.get(
    "/status", summary="Everything the dashboard shows", dependencies=[allow("reader")], **documented()
)
async def status(request: Request) -> Response:
    """One JSON document: counts, bandwidth, price, expected freshness, ages of the workers' passes."""
    found = await gather_status(frontier_of(request))
    return json_answer(found)


def _bandwidth(bandwidth: Bandwidth) -> Response:
    body = BandwidthBody(bandwidth.crawls_per_second)
    return json_answer(body, headers={"ETag": f'"{bandwidth.version}"'})


def _policy(chosen: Policy) -> Response:
    body = PolicyAnswer(chosen.objective, chosen.policy, chosen.explore, chosen.min_crawls_per_day)
    return json_answer(body, headers={"ETag": f'"{chosen.version}"'})


def _expected(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().strip('"')
    if not is_number(text) or len(text) > 15:
        raise Problem(412, "If-Match names no version")
    return int(text)


def _address(host: str) -> Address:
    try:
        return parse_host(host)
    except InvalidUrl as error:
        raise invalid(["path", "host"], str(error)) from None


def _changes(body: HostInput) -> dict[str, float]:
    """The fields a script understands: milliseconds, 0 for none, -1 for the default delay."""
    changes: dict[str, float] = {}
    if body.min_delay_s is not msgspec.UNSET:
        changes["delay_ms"] = -1.0 if body.min_delay_s is None else body.min_delay_s * 1000
    if body.max_crawls_per_second is not msgspec.UNSET:
        limit = body.max_crawls_per_second
        changes["gap_ms"] = 0.0 if limit is None else 1000 / limit
    if body.paused_until is not msgspec.UNSET:
        try:
            changes["paused_until"] = (parse_instant(body.paused_until) or 0.0) * 1000
        except InvalidInstant as error:
            raise invalid(["body", "paused_until"], str(error)) from None
    if body.rests_until is None:
        changes["busy_until"] = 0.0
    return changes


async def _host(request: Request, address: Address) -> Response:
    frontier = frontier_of(request)
    found = await frontier.read_host(address)
    if found is None:
        raise Problem(404, "no page and no rule of this host is known")
    return json_answer(
        HostAnswer(
            host=address.host,
            pages=found.pages,
            min_delay_s=found.min_delay_s,
            max_crawls_per_second=found.max_crawls_per_second,
            paused_until=render_optional(found.paused_until),
            rests_until=render_optional(found.rests_until),
            price=found.price,
        )
    )

"""What handlers reach for: the frontier of this process."""

from __future__ import annotations

from typing import cast

from fastapi import Request

from service.frontier import Frontier


def frontier_of(request: Request) -> Frontier:
    return cast(Frontier, request.app.state.frontier)

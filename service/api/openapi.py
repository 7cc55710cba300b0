"""The OpenAPI description of bodies and answers that handlers read and write without models."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from service.api.operator_schemas import (
    AuditAnswer,
    BandwidthBody,
    ForecastAnswer,
    HostAnswer,
    HostInput,
    ParkedAnswer,
    PolicyAnswer,
    PolicyInput,
    ReleasePages,
    SourceInput,
    SourceOut,
    SourcesAnswer,
)
from service.api.schemas import (
    DeleteAnswer,
    DeletePages,
    ExtendAnswer,
    ExtendLeases,
    NextAnswer,
    Outcomes,
    OutcomesAnswer,
    PageAnswer,
    PageList,
    ProblemOut,
    PutAnswer,
    PutPages,
    ReleaseAnswer,
    ReleaseLeases,
    Requests,
    RequestsAnswer,
    Signals,
    SignalsAnswer,
)

BODIES = (
    PutPages,
    DeletePages,
    Signals,
    Requests,
    Outcomes,
    ExtendLeases,
    ReleaseLeases,
    BandwidthBody,
    HostInput,
    PolicyInput,
    ReleasePages,
    SourceInput,
)
ANSWERS = (
    PutAnswer,
    DeleteAnswer,
    SignalsAnswer,
    RequestsAnswer,
    OutcomesAnswer,
    NextAnswer,
    ExtendAnswer,
    ReleaseAnswer,
    HostAnswer,
    PolicyAnswer,
    ForecastAnswer,
    ParkedAnswer,
    AuditAnswer,
    SourceOut,
    SourcesAnswer,
    PageAnswer,
    PageList,
    ProblemOut,
)


def components() -> dict[str, Any]:
    """JSON schemas of every body and answer, for the OpenAPI document."""
    _, found = msgspec.json.schema_components(BODIES + ANSWERS, ref_template="#/components/schemas/{name}")
    return dict(found)


def documented(
    body: type[Struct] | None = None,
    answer: type[Struct] | None = None,
    status: int = 200,
    says: str = "Done",
    empty: str | None = None,
) -> dict[str, Any]:
    """Route arguments that describe a body and an answer handled without models."""
    extra: dict[str, Any] = {}
    if body is not None:
        extra["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(body)}},
        }
    responses: dict[int | str, Any] = {
        "4XX": {
            "description": "Refused",
            "content": {"application/problem+json": {"schema": _ref(ProblemOut)}},
        },
        503: {
            "description": "The store does not answer",
            "content": {"application/problem+json": {"schema": _ref(ProblemOut)}},
        },
    }
    if answer is not None:
        responses[status] = {
            "description": says,
            "content": {"application/json": {"schema": _ref(answer)}},
        }
    if empty is not None:
        responses[204] = {"description": empty}
    return {"openapi_extra": extra, "responses": responses, "status_code": status}


def _ref(kind: type[Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}

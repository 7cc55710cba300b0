"""The OpenAPI document describes the service that is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from service.api import admin, audit, health, leases, next, outcomes, pages, requests, signals, sources


@pytest.fixture
async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get("/openapi.json")
    assert response.status_code == 200
    return dict(response.json())


def refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from refs(value)


def resolve(document: dict[str, Any], ref: str) -> Any:
    assert ref.startswith("#/")
    node: Any = document
    for part in ref[2:].split("/"):
        node = node[part.replace("~1", "/").replace("~0", "~")]
    return node


async def test_every_route_is_listed(document: dict[str, Any]) -> None:
    for module in (admin, audit, health, leases, next, outcomes, pages, requests, signals, sources):
        for route in module.router.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                for method in route.methods:
                    assert method.lower() in document["paths"][route.path]


async def test_every_reference_resolves(document: dict[str, Any]) -> None:
    found = set(refs(document))
    assert len(found) > 10
    for ref in found:
        assert isinstance(resolve(document, ref), dict)


async def test_every_operation_has_an_answer_and_a_summary(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert {"4XX", "503"} <= operation["responses"].keys(), (method, path)


async def test_every_body_has_a_schema_with_properties(document: dict[str, Any]) -> None:
    bodies = [
        operation["requestBody"]["content"]["application/json"]["schema"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    ]
    assert len(bodies) >= 11
    for schema in bodies:
        assert resolve(document, schema["$ref"])["properties"]


async def test_the_204_of_next_is_described(document: dict[str, Any]) -> None:
    assert "204" in document["paths"]["/next"]["get"]["responses"]


async def test_the_document_is_plain_json_and_the_same_each_time(
    client: httpx.AsyncClient, document: dict[str, Any]
) -> None:
    again = (await client.get("/openapi.json")).json()
    assert json.dumps(again, sort_keys=True) == json.dumps(document, sort_keys=True)


async def test_the_docs_page_is_served(client: httpx.AsyncClient) -> None:
    response = await client.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")

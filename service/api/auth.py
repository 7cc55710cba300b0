"""Who may do what. Without any key the service is open, but then only this machine can reach it."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Depends, Request

from service.api.problems import Problem
from service.store.keyring import Key, Keyring, find

FRESH_S = 1.0  # how long a revoked key may still be honoured
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class Gate:
    """The keys as this process last saw them."""

    def __init__(self, keyring: Keyring, *, is_open: bool = True) -> None:
        """Open: where there is no key at all none is needed."""
        self._keyring = keyring
        self._is_open = is_open
        self._keys: dict[str, Key] = {}
        self._read_at = -FRESH_S

    async def check(self, authorization: str, roles: frozenset[str]) -> Key | None:
        """The caller's key, None where none is needed; 401 without a valid one, 403 for another role's."""
        await self._refresh()
        if self._is_open and not self._keys:
            return None
        key = self._find(authorization)
        if key is None:
            raise Problem(401, "a valid key is needed: Authorization: Bearer <key>", headers=_CHALLENGE)
        if key.role not in roles:
            raise Problem(403, f"a key of role {key.role} may not do this")
        return key

    async def knows(self, authorization: str) -> bool:
        """Whether it is a key of this service."""
        if not authorization:
            return False
        await self._refresh()
        return self._find(authorization) is not None

    async def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._read_at >= FRESH_S:
            self._keys, self._read_at = await self._keyring.all(), now

    def admits(self, authorization: str, roles: frozenset[str]) -> bool:
        """Whether the keys as last seen let the caller in; where they are old or do not, `check` decides."""
        if time.monotonic() - self._read_at >= FRESH_S:
            return False
        if self._is_open and not self._keys:
            return True
        key = self._find(authorization)
        return key is not None and key.role in roles

    def _find(self, authorization: str) -> Key | None:
        scheme, _, secret = authorization.partition(" ")
        return find(self._keys, secret.strip()) if scheme.lower() == "bearer" else None


def sender_of(request: Request) -> str:
    """Who vouches for what is sent; '' where no key is needed."""
    key: Key | None = request.state.key
    return key.sender if key else ""


def actor_of(request: Request) -> str:
    """Who changes something; '' where no key is needed."""
    key: Key | None = request.state.key
    return f"{key.name} ({key.id})" if key else ""


def permitted(*roles: str) -> frozenset[str]:
    """These roles, and operators, who may do everything."""
    return frozenset((*roles, "operator"))


def allow(*roles: str) -> Any:
    """A route dependency: these roles, and operators."""
    allowed = permitted(*roles)

    async def check(request: Request) -> None:
        gate: Gate = request.app.state.gate
        request.state.key = await gate.check(request.headers.get("authorization", ""), allowed)

    dependency: Callable[[Request], Coroutine[Any, Any, None]] = check
    return Depends(dependency)

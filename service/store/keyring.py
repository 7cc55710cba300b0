"""API keys: only their hashes are kept; a key is shown once, when it is made."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_urlsafe

from service.store.connection import Server
from service.store.keys import CONTROL
from service.store.wire import pairs

ROLES = ("crawler", "sender", "operator", "reader")
COMMAND = "freshet keys"  # who makes and revokes them
_KEYS = f"{CONTROL}:keys"
_ID_SIZE = 12  # of a digest


@dataclass(frozen=True, slots=True)
class Key:
    """An API key as far as it is known after it was shown."""

    id: str
    name: str
    role: str
    created_at: float

    @property
    def sender(self) -> str:
        """Whose signals it vouches for: a renewed key of the same name keeps its reputation."""
        return self.name if self.name != self.role else self.id


class Keyring:
    """The keys of one store."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def create(self, name: str, role: str) -> tuple[str, Key]:
        """A new key: its secret text, shown this once, and its description."""
        name = _as_text(name)
        secret = f"freshet_{token_urlsafe(24)}"
        digest = _digest(secret)
        key = Key(digest[:_ID_SIZE], name, role, time.time())
        entry = json.dumps({"name": name, "role": role, "created_at": key.created_at})
        await self._server.call("set_key", [CONTROL], (COMMAND, digest, _ID_SIZE, entry))
        return secret, key

    async def all(self) -> dict[str, Key]:
        """Every key by its digest; one round trip."""
        stored = await self._server.execute("HGETALL", _KEYS)
        return {digest.decode(): _read(digest.decode(), entry) for digest, entry in pairs(stored)}

    async def revoke(self, key_id: str) -> bool:
        """Forget the key with this id; False if there is none."""
        for digest, key in (await self.all()).items():
            if key.id == key_id:
                (word,) = await self._server.call("set_key", [CONTROL], (COMMAND, digest, _ID_SIZE, ""))
                return bool(word == b"set")
        return False


def _digest(secret: str) -> str:
    # The secret has 192 random bits, so a fast hash is enough.
    return sha256(secret.encode()).hexdigest()


def find(keys: dict[str, Key], secret: str) -> Key | None:
    """The key a caller holds. Looking up a digest leaks nothing useful by its timing."""
    return keys.get(_digest(secret))


def _as_text(name: str) -> str:
    """What a shell gave may hold bytes that are no text."""
    return name.encode(errors="replace").decode()


def _read(digest: str, entry: bytes) -> Key:
    fields = json.loads(entry)
    return Key(digest[:_ID_SIZE], _as_text(fields["name"]), fields["role"], fields["created_at"])

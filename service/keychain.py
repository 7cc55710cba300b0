"""`freshet keys`: make, list and revoke API keys, on the running store or the embedded one at rest."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from service.api.instants import render_instant
from service.embedded import store_url
from service.settings import Settings
from service.store.connection import Server
from service.store.keyring import Keyring


def manage_keys(settings: Settings, action: str, name: str, role: str, key_id: str) -> int:
    """The exit code; prints what was asked for."""
    with ExitStack() as stack:
        url = store_url(settings, stack, may_make=action == "create")
        return asyncio.run(_manage(url, action, name, role, key_id))


async def _manage(url: str, action: str, name: str, role: str, key_id: str) -> int:
    server = Server(url, connections=1)
    keyring = Keyring(server)
    try:
        if action == "create":
            secret, key = await keyring.create(name or role, role)
            print(f"{secret}\n  id {key.id}, role {role}; this is the only time the key is shown")
        elif action == "list":
            for key in (await keyring.all()).values():
                print(f"{key.id}  {key.role:<8}  {render_instant(key.created_at)}  {key.name}")
        elif not await keyring.revoke(key_id):
            print(f"no key has the id {key_id!r}")
            return 1
    finally:
        await server.close()
    return 0

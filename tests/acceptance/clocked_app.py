"""An API process whose clock is a key in the store, so that several processes share manual time."""

from __future__ import annotations

import os

from fastapi import FastAPI

from service.app import create_app
from service.settings import read_settings
from service.store.connection import Server

CLOCK_KEY = "test:clock_ms"


class SharedClock:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def argument(self) -> str:
        return (await self._server.execute("GET", CLOCK_KEY)).decode()


def create() -> FastAPI:
    settings = read_settings(os.environ, {})
    return create_app(settings, clock=SharedClock(Server(settings.redis_url)))

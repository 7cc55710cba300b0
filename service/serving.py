"""HTTP processes. Apart from the command: what they need takes a second to import, and only they need it."""

from __future__ import annotations

import os

import uvicorn
from fastapi import FastAPI

from service import logs
from service.app import create_app
from service.child import tie
from service.settings import Settings, read_settings
from service.transport import UVICORN


def run(settings: Settings) -> None:
    """Serve until told to stop. Each process reads its settings from the environment."""
    uvicorn.run(
        "service.serving:app_from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.api_processes,
        **UVICORN,
    )


def app_from_environment() -> FastAPI:
    """What each of them runs."""
    tie()  # else processes whose parent was killed would answer on
    logs.configure()
    return create_app(read_settings(os.environ, {}))

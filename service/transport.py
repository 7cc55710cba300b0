"""How HTTP is served, apart from where and by how many processes."""

from __future__ import annotations

from typing import Any

UVICORN: dict[str, Any] = {
    "loop": "uvloop",
    "http": "httptools",
    "access_log": False,
    "proxy_headers": False,  # nothing here asks who the client is
    "log_config": None,
    "server_header": False,
    "timeout_graceful_shutdown": 10,
}

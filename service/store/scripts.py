"""The Lua files as one function library.

Functions are replicated and persisted with the data, unlike cached scripts, so a failover or restart does
not lose them. The library's name carries the hash of its source: two releases run side by side.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib import resources

SHARED = (
    "common.lua",
    "common_value.lua",
    "common_host.lua",
    "common_index.lua",
    "common_growth.lua",
    "common_choice.lua",
    "common_answers.lua",
    "common_pace.lua",
    "common_lease.lua",
)


@cache
def library() -> tuple[str, str]:
    """(version, source) of the library made of `lua/*.lua`, the shared ones first."""
    folder = resources.files("service.store") / "lua"
    files = sorted(
        (f for f in folder.iterdir() if f.name.endswith(".lua") and f.name not in SHARED),
        key=lambda f: f.name,
    )
    common = "".join((folder / name).read_text() for name in SHARED)
    # Each file in a function of its own: one may hold only 200 locals, and use 60 of those around it.
    bodies = "".join(f"do (function()\n{f.read_text()}end)() end\n" for f in files)
    version = blake2b((common + bodies).encode(), digest_size=4).hexdigest()
    source = f"#!lua name=freshet_{version}\nlocal VERSION = '{version}'\n{common}\n{bodies}"
    return version, source


def function_name(name: str) -> str:
    return f"{name}_{library()[0]}"

"""`freshet up`: the store, the API and a worker as child processes of one command."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from service.child import stopped_after, tied
from service.cli import as_environment, refuse_open_door
from service.embedded import EmbeddedServer
from service.errors import SchedulerError
from service.settings import Settings

READY_S = 60.0
STOP_S = 15.0
CHECK_S = 0.2


class _Stopped(Exception):
    """A signal asked to stop."""


def up(settings: Settings) -> int:
    """Run everything until Ctrl-C; stops all it started, also when a part fails."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        with ExitStack() as stack:
            if not settings.redis_url:
                server = stack.enter_context(EmbeddedServer(settings.data_dir))
                settings = dataclasses.replace(settings, redis_url=server.url)
            refuse_open_door(settings)
            children = [stack.enter_context(_child(name, settings)) for name in ("serve", "work")]
            _wait_ready(settings, children)
            _greet(settings)
            _watch(children)
    except _Stopped:
        return 0
    return 1


def _stop(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # stopping once is enough
    raise _Stopped


@contextmanager
def _child(command: str, settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **as_environment(settings)}
    # A group of its own: Ctrl-C reaches only this process, which stops the children in order.
    process = subprocess.Popen(
        tied(sys.executable, "-m", "service", command), env=environment, start_new_session=True
    )
    with stopped_after(process, STOP_S):
        yield process


def _wait_ready(settings: Settings, children: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + READY_S
    url = f"{_base(settings)}/readyz"
    while time.monotonic() < deadline:
        _check(children)
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(CHECK_S)
    raise SchedulerError(f"the API did not become ready within {READY_S:.0f} s")


def _watch(children: list[subprocess.Popen[bytes]]) -> None:
    while True:
        _check(children)
        time.sleep(CHECK_S)


def _check(children: list[subprocess.Popen[bytes]]) -> None:
    for process in children:
        if process.poll() is not None:
            raise SchedulerError(f"a child process ended with code {process.returncode}; see the log above")


def _base(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


def _greet(settings: Settings) -> None:
    base = _base(settings)
    print(
        f"\n  Freshet is up.  Dashboard {base}/   API {base}/docs\n"
        f"  {_reach(settings)} Ctrl-C stops everything.\n\n"
        f'  A first page:   curl -X PUT {base}/pages -d \'{{"pages": [{{"url": "https://example.com/"}}]}}\'\n'
        f"  What to crawl:  curl {base}/next\n",
        flush=True,
    )


def _reach(settings: Settings) -> str:
    if settings.is_loopback:
        return "Only this machine can reach it."
    return f"It listens on {settings.host}; every call needs a key."

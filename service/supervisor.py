"""`freshet up`: the store, the API and a worker as child processes of one command."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from service.child import stopped_after, tied
from service.cli import as_environment, refuse_open_door, refuse_other_shards
from service.embedded import EmbeddedServer
from service.errors import SchedulerError
from service.settings import Settings
from service.store.upkeep import tended

log = logging.getLogger("freshet.up")
READY_S = 60.0
STOP_S = 15.0
CHECK_S = 0.2
SHORT_S = 30.0  # a part that lived no longer than that may never do
MOST_SHORT = 5  # such lives in a row after which everything is given up
PAUSE_S = 0.1  # before one is started again after a short life; twice as long after each more


class _Stopped(Exception):
    """A signal asked to stop."""


class _Part:
    """A child process that is started again where it ends."""

    def __init__(self, name: str, start: Callable[[], None], exit_code: Callable[[], int | None]) -> None:
        """Takes one that runs; `exit_code` gives None while it does."""
        self._name = name
        self._start = start
        self._exit_code = exit_code
        self._since = time.monotonic()
        self._short = 0  # lives in a row

    def check(self) -> None:
        """At the start whoever ends has a reason that will not go away."""
        if (code := self._exit_code()) is not None:
            raise SchedulerError(f"{self._name} ended with code {code}; see the log above")

    def revive(self) -> None:
        """Start it again if it has ended."""
        code = self._exit_code()
        if code is None:
            return
        self._short = self._short + 1 if time.monotonic() - self._since < SHORT_S else 0
        if self._short == MOST_SHORT:
            raise SchedulerError(
                f"{self._name} ended {self._short} times soon after its start, at last with code {code}; "
                "see the log above"
            )
        log.warning("part_started_again", extra={"part": self._name, "code": code})
        if self._short:
            time.sleep(PAUSE_S * 2**self._short)
        self._since = time.monotonic()
        try:
            self._start()
        except SchedulerError as error:
            if self._exit_code() is None:  # it hangs
                raise
            log.warning("part_not_started", extra={"part": self._name, "error": str(error)})


def up(settings: Settings, begin: Callable[[], None] = lambda: None) -> int:
    """Run everything until Ctrl-C, and `begin` once it is ready; starts again what ends, and stops all it
    started.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        with ExitStack() as stack:
            _refuse_taken_port(settings)
            parts = []
            if not settings.redis_url:
                server = EmbeddedServer(settings.data_dir, durability=settings.durability)
                stack.enter_context(server)
                settings = dataclasses.replace(settings, redis_url=server.url)
                parts.append(_Part("the store", server.revive, lambda: server.exit_code))
                if server.durability != "memory":
                    stack.enter_context(tended(server.socket_path, lambda: server.pid))
            refuse_open_door(settings)
            refuse_other_shards(settings)
            parts += [_start(stack, command, settings) for command in ("serve", "work")]
            _wait_ready(settings, parts)
            _greet(settings)
            begin()
            while True:
                for part in parts:
                    part.revive()
                time.sleep(CHECK_S)
    except _Stopped:
        return 0


def _stop(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # stopping once is enough
    raise _Stopped


def _refuse_taken_port(settings: Settings) -> None:
    """Before anything is started: else whoever answers there would be taken for this service."""
    family, kind, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            where = f"{settings.host}, port {settings.port}"
            raise SchedulerError(f"cannot listen on {where}: {error.strerror}") from None


def _start(stack: ExitStack, command: str, settings: Settings) -> _Part:
    """A part of which there is one process at a time; the stack stops them all."""
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        processes[:] = [stack.enter_context(_child(command, settings))]

    start()
    return _Part(f"`freshet {command}`", start, lambda: processes[0].poll())


@contextmanager
def _child(command: str, settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **as_environment(settings)}
    # A group of its own: Ctrl-C reaches only this process, which stops the children in order.
    process = subprocess.Popen(
        tied(sys.executable, "-m", "service", command), env=environment, start_new_session=True
    )
    with stopped_after(process, STOP_S):
        yield process


def _wait_ready(settings: Settings, parts: list[_Part]) -> None:
    deadline = time.monotonic() + READY_S
    url = f"{_base(settings)}/readyz"
    while time.monotonic() < deadline:
        for part in parts:
            part.check()
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(CHECK_S)
    raise SchedulerError(f"the API did not become ready within {READY_S:.0f} s")


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

"""What a bench starts: an embedded store and services beside it, all stopped when the block ends."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from loadtest.bench.resp import Store
from loadtest.cluster import LocalCluster
from service.child import stopped_after, tied
from service.embedded import EmbeddedServer
from service.store.upkeep import tended

READY_S, STOP_S, POLL_S = 60.0, 15.0, 0.05


class NotReady(RuntimeError):
    """A server that was started does not answer."""


class Service:
    """A process that listens on this machine, and what it spends."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], path: str) -> None:
        self.port = port
        self._process = process
        self._path = path

    def wait(self) -> None:
        """Until it answers."""
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self.call("GET", self._path)
                return
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise NotReady(f"a server did not become ready: {error}") from error
                time.sleep(POLL_S)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request on a connection of its own; the decoded answer, None if it has no body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            raw = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {raw[:300].decode(errors='replace')}")
        return json.loads(raw) if raw.startswith((b"{", b"[")) else None

    def cpu_s(self) -> float:
        """Processor time of the process and its children so far; 0 where the system does not tell."""
        return _tree_cpu_s(self._process.pid)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def child(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m COMMAND`, in a session of its own so that Ctrl-C reaches only who started it."""
    process = subprocess.Popen(
        tied(sys.executable, "-m", *command),
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with stopped_after(process, STOP_S):
        yield process


@contextmanager
def listening(*command: str, port: int, path: str, **environment: str) -> Iterator[Service]:
    """A child that will answer at this path; wait for it, so that several may start side by side."""
    with child(*command, **environment) as process:
        yield Service(port, process, path)


class Stack:
    """A store of its own, and services on it by their number of processes."""

    def __init__(self, url: str, place: Path | int, store: Store) -> None:
        self.url = url
        self.place = place  # where further connections to the store are made
        self.store = store
        self.services: dict[int, Service] = {}
        self.environment: dict[str, str] = {}

    def wait(self) -> None:
        """Until all services answer."""
        for service in self.services.values():
            service.wait()

    @property
    def service(self) -> Service:
        """The one of a single process."""
        return self.services[1]


MakeStore = Callable[[], AbstractContextManager[Stack]]


@contextmanager
def store_only() -> Iterator[Stack]:
    """An empty store, set up as the product sets it up."""
    with (
        tempfile.TemporaryDirectory(prefix="freshet-bench-", ignore_cleanup_errors=True) as folder,
        EmbeddedServer(Path(folder)) as server,
        tended(server.socket_path, lambda: server.pid),
        Store(server.socket_path) as store,
    ):
        yield Stack(server.url, server.socket_path, store)


@contextmanager
def cluster_only() -> Iterator[Stack]:
    """Three empty primaries; what is asked of the store alone is asked of the first."""
    with (
        tempfile.TemporaryDirectory(prefix="freshet-bench-", ignore_cleanup_errors=True) as folder,
        LocalCluster(Path(folder)) as cluster,
        Store(cluster.members[0].port) as store,
    ):
        yield Stack(cluster.url, cluster.members[0].port, store)


@contextmanager
def stack(
    settings: dict[str, str],
    processes: tuple[int, ...] = (1,),
    store: MakeStore = store_only,
) -> Iterator[Stack]:
    """A store and a service for each number of processes, to be waited for; settings as `FRESHET_*`."""
    with store() as made, ExitStack() as started:
        made.environment = {"FRESHET_REDIS_URL": made.url, **settings}
        for number in processes:
            port = free_port()
            environment = {
                **made.environment,
                "FRESHET_PORT": str(port),
                "FRESHET_API_PROCESSES": str(number),
            }
            command = listening("service", "serve", port=port, path="/readyz", **environment)
            made.services[number] = started.enter_context(command)
        yield made


def _tree_cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(_tree_cpu_s(int(child_pid)) for child_pid in children)

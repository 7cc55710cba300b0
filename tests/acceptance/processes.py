"""Real processes for acceptance tests: started on free ports, stopped whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 300.0  # that anything may take on a machine that is several times slower than usual


@contextmanager
def free_port() -> Iterator[int]:
    """A port that nobody else is given before who is to listen on it does, which takes it beside us."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
        if sys.platform != "linux":  # where only one can have it
            held.close()
        yield port


def wait_ready(base: str, process: subprocess.Popen[bytes], seconds: float = LONGEST_S) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"ended with {process.returncode} before it was ready"
        try:
            if httpx.get(f"{base}/readyz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{base} was not ready within {seconds} s")


@contextmanager
def running(*command: str, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own group; on the way out it gets SIGTERM, then SIGKILL."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def freshet_up(folder: Path, **environment: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`freshet up` on a free port with its data in the folder."""
    with free_port() as port:
        settings = {"FRESHET_PORT": str(port), "FRESHET_DATA_DIR": str(folder / "data"), **environment}
        with running("-m", "service", "up", log=folder / "up.log", **settings) as process:
            base = f"http://127.0.0.1:{port}"
            wait_ready(base, process)
            yield base, process

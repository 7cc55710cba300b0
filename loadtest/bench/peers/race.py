"""Part `peers`: installs each peer where it disturbs nobody, lets it push and pop, and counts the cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from loadtest.bench.plan import Bench
from loadtest.bench.servers import store_only
from loadtest.bench.serving import USUAL, urls_per_core
from loadtest.bench.shared import Shared
from loadtest.bench.web import Web

INSTALL_S, RUN_S = 900.0, 300.0
SCRIPT = Path(__file__).with_name("drive.py")


@dataclass(frozen=True, slots=True)
class Peer:
    """A frontier to be raced."""

    name: str
    packages: tuple[str, ...]
    pops: str  # how it hands URLs out
    lacks: str

    @property
    def figure(self) -> str:
        return f"{self.name}, popped per second and core"


PEERS = (
    Peer(
        "scrapy-redis",
        ("scrapy-redis==0.9.1", "Scrapy==2.19.0", "redis==8.1.0"),
        "scheduler called within the crawler, priority queue and duplicate filter, one at a time",
        "no lease, no politeness across processes, no revisits, no change model, no pace",
    ),
    Peer(
        "Frontera",
        ("frontera==0.8.1", "w3lib<2", "redis<5", "SQLAlchemy<1.4", "six==1.17.0", "msgpack==1.1.1"),
        "Redis queue called within the crawler, 64 at a time",
        "no lease, no politeness but a share per batch, revisits only when told, no change model, no pace",
    ),
    Peer(
        "Crawlee",
        ("crawlee[sql-sqlite]==1.11.0",),
        "request queue on SQLite within the crawler, fetched and marked as handled one at a time",
        "a lease without fencing, no politeness, no revisits, no change model, no pace, one machine",
    ),
)


def ours_name(count: int) -> str:
    return f"/next n={count}, {USUAL} connections, per second and core"


def peers_round(shared: Shared) -> None:
    """Ours, then every peer; one that cannot be installed or run is reported as such."""
    bench = shared.bench
    for count in (1, 50):
        note = "over HTTP, with lease, politeness, pace, revisits by value; client, service and store"
        bench.findings.add("peers", ours_name(count), urls_per_core(shared, count), "URLs/s/core", note)
    for peer in PEERS:
        if peer.name not in bench.findings.remarks and _install(bench, peer):
            bench.step(f"racing {peer.name}")
            _race(bench, peer)


def _install(bench: Bench, peer: Peer) -> bool:
    """An environment with exactly these packages; made once and kept."""
    home = _home(bench, peer)
    mark = home / "installed"
    if mark.exists():
        return True
    bench.step(f"installing {peer.name}")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(home)], INSTALL_S)
        pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *peer.packages], INSTALL_S)
    except (OSError, subprocess.SubprocessError) as error:
        return _give_up(bench, peer, "could not be installed", error)
    mark.touch()
    return True


def _race(bench: Bench, peer: Peer) -> None:
    """Push URLs into an empty queue and pop all of them."""
    web = Web(bench.plan.peer_pages)
    with store_only() as made:
        socket_path = Path(str(made.place))
        urls = socket_path.with_name("urls")
        urls.write_text("\n".join(web.url(number) for number in range(web.pages)))
        paths = (urls, socket_path, urls.with_name("queue.db"))
        command = [str(_home(bench, peer) / "bin/python"), str(SCRIPT), peer.name, *map(str, paths)]
        try:
            told: dict[str, Any] = json.loads(_run(command, RUN_S).splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            _give_up(bench, peer, "could not be run", error)
            return
    note = f"{peer.pops}; {peer.lacks}"
    bench.findings.add("peers", peer.figure, told["popped"] / told["pop_cpu_s"], "URLs/s/core", note)
    name = f"{peer.name}, pushed per second and core"
    bench.findings.add("pushing", name, told["pushed"] / told["push_cpu_s"], "URLs/s/core")


def _home(bench: Bench, peer: Peer) -> Path:
    digest = blake2b("\n".join([sys.version, *peer.packages]).encode(), digest_size=4).hexdigest()
    return bench.plan.env_dir.expanduser() / f"{peer.name}-{digest}"


def _run(command: list[str], seconds: float) -> str:
    """The standard output; what other environments export is kept away."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=True,
        env=kept,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def _give_up(bench: Bench, peer: Peer, what: str, error: Exception) -> bool:
    text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    gist = " ".join((text or str(error)).strip().splitlines()[-1:])[:300]
    bench.findings.remarks[peer.name] = f"{what}: {gist}"
    return False

"""Part `peers`: installs each peer where it disturbs nobody, lets it push and pop, and counts the cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from loadtest.bench.plan import Bench
from loadtest.bench.servers import Stack, store_only
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
        "scheduler with priority queue and duplicate filter, one at a time",
        "no lease, no politeness across processes, no revisits, no change model, no pace",
    ),
    Peer(
        "Frontera",
        ("frontera==0.8.1", "w3lib<2", "redis<5", "SQLAlchemy<1.4", "six==1.17.0", "msgpack==1.1.1"),
        "Redis queue, 50 at a time",
        "no lease, no politeness but a share per batch, revisits only when told, no change model, no pace",
    ),
    Peer(
        "Crawlee",
        ("crawlee[sql-sqlite]==1.11.0",),
        "request queue on SQLite, one at a time",
        "a lease without fencing, no politeness, no revisits, no change model, no pace, one machine",
    ),
)


def peers(bench: Bench) -> None:
    """Every peer in every round; one that cannot be installed or run is reported as such."""
    ready = [peer for peer in PEERS if _install(bench, peer)]
    broken: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as folder, store_only() as made:
        urls = Path(folder) / "urls"
        web = Web(bench.plan.peer_pages)
        urls.write_text("\n".join(web.url(number) for number in range(web.pages)))
        for number in range(bench.plan.rounds):
            for peer in ready:
                if peer.name not in broken:
                    bench.step(f"round {number + 1} of {bench.plan.rounds}: {peer.name}")
                    if not _race(bench, peer, made, urls, Path(folder) / f"{number}.db"):
                        broken.add(peer.name)


def _install(bench: Bench, peer: Peer) -> bool:
    """An environment with exactly these packages; made once and kept."""
    bench.step(f"installing {peer.name}")
    home = _home(bench, peer)
    mark = home / "installed"
    if mark.exists():
        return True
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(home)], INSTALL_S)
        pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *peer.packages], INSTALL_S)
    except (OSError, subprocess.SubprocessError) as error:
        return _give_up(bench, peer, "could not be installed", error)
    mark.touch()
    return True


def _race(bench: Bench, peer: Peer, made: Stack, urls: Path, database: Path) -> bool:
    """One round: push all URLs, pop all; a figure for each."""
    made.store.run("FLUSHALL")
    python = str(_home(bench, peer) / "bin/python")
    command = [python, str(SCRIPT), peer.name, str(urls), str(made.socket_path), str(database)]
    try:
        told: dict[str, Any] = json.loads(_run(command, RUN_S).splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return _give_up(bench, peer, "could not be run", error)
    note = f"{peer.pops}; {peer.lacks}"
    bench.findings.add("peers", peer.figure, told["popped"] / told["pop_cpu_s"], "URLs/s/core", note)
    name = f"{peer.name}, pushed per second and core"
    bench.findings.add("pushing", name, told["pushed"] / told["push_cpu_s"], "URLs/s/core")
    return True


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
    bench.findings.remarks.append(f"{peer.name} {what}: {gist}")
    return False

"""A real cluster on loopback, made of the bundled server, gone when the `with` block ends."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from service.child import tied
from service.embedded import bundled_binary, config_for

SLOTS = 16384
CLUSTER_CONFIG = """\
cluster-enabled yes
cluster-require-full-coverage no
cluster-allow-replica-migration no
repl-diskless-sync-delay 0
"""
START_S = 60.0


class Member:
    """One server, with these settings but on a port and in a folder of its own."""

    def __init__(self, folder: Path, *, settings: str, binary: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self._binary = binary or str(bundled_binary())
        self.port, self.bus_port = free_ports(2)
        place = f'bind 127.0.0.1\nport {self.port}\ncluster-port {self.bus_port}\ndir "{folder}"\n'
        self._config = folder / "node.conf"
        self._config.write_text(settings + place)
        self._log = folder / "log"
        self.client = redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10)
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def id(self) -> str:
        return str(self.ask("CLUSTER", "MYID").decode())

    def ask(self, *command: Any) -> Any:
        return self.client.execute_command(*command)  # type: ignore[no-untyped-call]

    def is_in_step(self) -> bool:
        """Whether a replica follows its primary."""
        return bool(self.ask("INFO")["master_link_status"] == "up")

    def is_written(self) -> bool:
        """Whether its log has all it acknowledged: while the disk is busy with a sync it holds some back."""
        return bool(self.ask("INFO", "persistence")["aof_buffer_length"] == 0)

    def start(self) -> None:
        with self._config.open("rb") as config, self._log.open("ab") as log:
            self.process = subprocess.Popen(
                tied(self._binary, "-"),
                stdin=config,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        until(self._answers)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.client.close()
        self.kill()

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(self._log.read_text())
        with contextlib.suppress(redis.ConnectionError):
            return bool(self.client.ping())
        return False


class LocalCluster:
    """Three primaries, or more, that share the slots evenly; each with a replica where asked for."""

    def __init__(
        self,
        folder: Path,
        *,
        binary: str = "",
        primaries: int = 3,
        replicas: bool = False,
        node_timeout_ms: int = 15_000,
    ) -> None:
        self._folder = folder
        self._binary = binary
        self._settings = config_for("local") + CLUSTER_CONFIG + f"cluster-node-timeout {node_timeout_ms}\n"
        self._size = primaries
        self._has_replicas = replicas
        self.members: list[Member] = []

    def __enter__(self) -> LocalCluster:
        try:
            self._assemble()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _assemble(self) -> None:
        self.primaries = [self.add() for _ in range(self._size)]
        for at, member in enumerate(self.primaries):
            first, last = at * SLOTS // self._size, (at + 1) * SLOTS // self._size - 1
            self._give(member, first, last)
            member.ask("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        self.replicas = [self.add() for _ in self.primaries] if self._has_replicas else []
        self.meet()
        for primary, replica in zip(self.primaries, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", primary.id)
            until(replica.is_in_step)

    def _give(self, member: Member, first: int, last: int) -> None:
        """A server that holds keys has taken their slots by itself when it started."""
        taken = [range(low, high + 1) for low, high, *_ in member.ask("CLUSTER", "SLOTS")]
        free = [slot for slot in range(first, last + 1) if not any(slot in slots for slots in taken)]
        member.ask("CLUSTER", "ADDSLOTS", *free)

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.close()

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(member.address for member in self.members)}"

    def add(self) -> Member:
        """Another server, alone until it is met."""
        folder = self._folder / str(len(self.members))
        member = Member(folder, settings=self._settings, binary=self._binary)
        self.members.append(member)
        return member

    def meet(self) -> None:
        """Make all members know each other and agree on who has which slot."""
        for member in self.members[1:]:
            first = self.members[0]
            member.ask("CLUSTER", "MEET", "127.0.0.1", first.port, first.bus_port)
        until(self.is_whole)

    def is_whole(self) -> bool:
        """Whether every member knows every other and sees all slots served."""
        seen = [member.ask("CLUSTER", "INFO") for member in self.members]
        known = f"cluster_known_nodes:{len(self.members)}\r\n".encode()
        return all(b"cluster_state:ok" in s and b"slots_ok:16384" in s and known in s for s in seen)

    def flush(self) -> None:
        for member in self.primaries:
            member.ask("FLUSHALL")

    def owner(self, key: str) -> Member:
        """The primary that has the key's slot, by the word of the first member that lives."""
        slot = self.slot(key)
        for member in self.members:
            if member.process.poll() is None:
                return self.owner_of(member, slot)
        raise LookupError("nobody lives")

    def owner_of(self, asked: Member, slot: int) -> Member:
        for first, last, (_, port, *_), *_ in asked.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(member for member in self.members if member.port == port)
        raise LookupError(f"nobody has slot {slot}")

    def slot(self, key: str) -> int:
        return int(self.members[0].ask("CLUSTER", "KEYSLOT", key))


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that comes true by itself."""
    deadline = time.monotonic() + START_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("it never came true")
        time.sleep(0.02)

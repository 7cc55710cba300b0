"""The store's own protocol, as bare as it gets: prepared bytes in, replies out, many at a time."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import hiredis

Word = bytes | str | int | float
AHEAD = 2  # groups of commands under way: the server finds the next one waiting when it ends one
READ_BYTES = 1 << 16


def encode(*words: Word) -> bytes:
    """One command."""
    return cast(bytes, hiredis.pack_command(cast(Any, words)))


class Store:
    """One connection to a server: to its Unix socket, or to its port on this machine."""

    def __init__(self, place: Path | int) -> None:
        if isinstance(place, int):
            self._socket = socket.create_connection(("127.0.0.1", place))
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(os.fspath(place))
        self._reader = hiredis.Reader()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def run(self, *words: Word) -> Any:
        """One command and its reply; an error as an exception."""
        self._socket.sendall(encode(*words))
        return self._checked(self._reply())

    def pipeline(self, groups: Iterable[Sequence[bytes]]) -> tuple[float, list[Any]]:
        """Seconds and replies of groups of encoded commands, the next group sent before a reply is read."""
        began, waiting, replies = time.perf_counter(), [], []
        for group in groups:
            self._socket.sendall(b"".join(group))
            waiting.append(len(group))
            if len(waiting) == AHEAD:
                replies += [self._reply() for _ in range(waiting.pop(0))]
        for size in waiting:
            replies += [self._reply() for _ in range(size)]
        seconds = time.perf_counter() - began
        for reply in replies:
            self._checked(reply)
        return seconds, replies

    def info(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        lines = self.run("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu_s(self) -> float:
        """Processor time of the server so far."""
        used = self.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is False:
            read = self._socket.recv(READ_BYTES)
            if not read:
                raise ConnectionError("the store closed the connection")
            self._reader.feed(read)
        return reply

    def _checked(self, reply: Any) -> Any:
        if isinstance(reply, hiredis.ReplyError):
            raise RuntimeError(f"the store refused: {reply}")
        return reply

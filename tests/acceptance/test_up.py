"""What a stranger does: start, add a page, get it, report, ask why; and what an operator relies on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import redis

from service.embedded import choose_socket_path
from service.errors import SchedulerError
from service.store.upkeep import NICE
from service.supervisor import _Part
from tests.acceptance.processes import LONGEST_S, free_port, freshet_up, running, wait_ready


def _children(pid: int) -> set[int]:
    """Every process below this one."""
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if parent == pid:
            child = int(folder.name)
            found |= {child} | _children(child)
    return found


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def _wait_gone(pids: set[int], seconds: float = LONGEST_S) -> set[int]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(map(_alive, pids)):
        time.sleep(0.05)
    return {pid for pid in pids if _alive(pid)}


def _wait_for(wanted: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not wanted():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)


def test_the_four_calls_of_the_readme_serve_a_page_and_say_why(tmp_path: Path) -> None:
    with freshet_up(tmp_path) as (base, _):
        pages = [
            {"url": "https://example.com/", "importance": 5},
            {"url": "https://example.com/news", "change_rate_per_day": 24, "precision": 0.9, "recall": 0.8},
        ]
        assert httpx.put(f"{base}/pages", json={"pages": pages}).json()["added"] == 2
        served = httpx.get(f"{base}/next", params={"wait": 5}).json()["pages"][0]
        assert served["url"] == "https://example.com/"
        outcome = {"lease": served["lease"], "status": 200, "changed": True}
        answer = httpx.post(f"{base}/outcomes", json={"outcomes": [outcome]}).json()
        assert answer == {"accepted": 1, "duplicates": 0, "rejected": []}
        signal_ = {"url": "https://example.com/news", "source": "cdn"}
        assert httpx.post(f"{base}/signals", json={"signals": [signal_]}).json()["accepted"] == 1
        why = httpx.get(f"{base}/pages", params={"url": "https://example.com/news"}).json()
        assert why["state"] == "due"
        assert why["reason"].startswith("never crawled: due at once")
        assert "freshet_pages 2.0" in httpx.get(f"{base}/metrics").text


def test_pages_survive_a_restart_and_stopping_leaves_nothing_running(tmp_path: Path) -> None:
    with freshet_up(tmp_path) as (base, process):
        httpx.put(f"{base}/pages", json={"pages": [{"url": "https://kept.example/"}]})
        family = _children(process.pid)
        assert len(family) >= 3
    assert _wait_gone(family | {process.pid}) == set()
    with freshet_up(tmp_path) as (base, _):
        assert httpx.get(f"{base}/pages", params={"url": "https://kept.example/"}).status_code == 200


def test_a_killed_parent_takes_its_store_along_and_the_next_start_works(tmp_path: Path) -> None:
    with freshet_up(tmp_path) as (base, process):
        httpx.put(f"{base}/pages", json={"pages": [{"url": "https://kept.example/"}]})
        family = _children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert _wait_gone(family) == set()
    with freshet_up(tmp_path) as (base, _):
        assert httpx.get(f"{base}/pages", params={"url": "https://kept.example/"}).status_code == 200


def test_who_writes_the_log_anew_stands_back_behind_those_that_serve(tmp_path: Path) -> None:
    with (
        freshet_up(tmp_path) as (_, process),
        redis.Redis(unix_socket_path=str(choose_socket_path(tmp_path / "data"))) as store,
    ):
        pid = store.info("server")["process_id"]
        store.config_set("rdb-key-save-delay", 500_000)  # microseconds, for each key
        store.bgrewriteaof()
        _wait_for(lambda: {_priority(child) for child in _children(pid)} == {NICE}, process)


def _priority(pid: int) -> int | None:
    """None where it has ended meanwhile."""
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except ProcessLookupError:
        return None


def _named(pids: set[int], *words: str) -> set[int]:
    """Those of the processes whose command has all these words."""
    found = set()
    for pid in pids:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ").split()
        except OSError:
            continue
        if all(any(part.endswith(word) for part in command) for word in words):
            found.add(pid)
    return found


@pytest.mark.parametrize("words", [("valkey-server",), ("service", "serve"), ("service", "work")])
def test_a_part_that_is_killed_is_started_again_and_nothing_is_lost(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with freshet_up(tmp_path) as (base, process):
        # Until then whoever ends ends all.
        _wait_for(lambda: "Freshet is up" in (tmp_path / "up.log").read_text(), process)
        httpx.put(f"{base}/pages", json={"pages": [{"url": "https://kept.example/"}]})
        leased = httpx.get(f"{base}/next", params={"wait": 5}).json()["pages"][0]
        killed = _named(_children(process.pid), *words)
        assert killed
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        _wait_for(lambda: bool(_named(_children(process.pid), *words) - killed), process)
        wait_ready(base, process)
        answer = httpx.post(f"{base}/outcomes", json={"outcomes": [{"lease": leased["lease"]}]}).json()
        assert answer["accepted"] == 1
        family = _children(process.pid)
    assert _wait_gone(family | {process.pid}) == set()
    assert '"part_started_again"' in (tmp_path / "up.log").read_text()


def test_api_processes_end_with_their_parent_which_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    with freshet_up(tmp_path, FRESHET_API_PROCESSES="2") as (base, process):
        _wait_for(lambda: "Freshet is up" in log.read_text(), process)
        (parent,) = _named(_children(process.pid), "service", "serve")
        api = _children(parent)
        assert len(api) >= 2
        os.kill(parent, signal.SIGKILL)
        assert _wait_gone(api) == set()
        wait_ready(base, process)
        family = _children(process.pid)
    assert _wait_gone(family | {process.pid}) == set()


def test_a_part_that_ends_again_at_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.supervisor.PAUSE_S", 0.0)
    tries: list[int] = []

    def start() -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            raise SchedulerError("it died at start")

    part = _Part("the store", start, lambda: None if len(tries) == 2 else 1)
    part.revive()
    part.revive()
    part.revive()
    assert tries == [0, 1]


def test_a_part_that_never_lives_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.supervisor.PAUSE_S", 0.0)
    starts: list[None] = []
    part = _Part("the store", lambda: starts.append(None), lambda: 1)
    for _ in range(4):
        part.revive()
    with pytest.raises(SchedulerError, match="ended 5 times"):
        part.revive()
    assert len(starts) == 4


def test_a_port_that_is_taken_is_said_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, log = str(taken.getsockname()[1]), tmp_path / "refused.log"
        with running(
            "-m", "service", "up", log=log, FRESHET_PORT=port, FRESHET_DATA_DIR=str(tmp_path / "data")
        ) as process:
            assert process.wait(LONGEST_S) == 2
    said = log.read_text()
    assert f"cannot listen on 127.0.0.1, port {port}" in said
    assert "Freshet is up" not in said
    assert not (tmp_path / "data").exists()


def test_two_instances_run_side_by_side_and_one_folder_is_never_shared(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with freshet_up(first) as (base_one, _), freshet_up(second) as (base_two, _):
        httpx.put(f"{base_one}/pages", json={"pages": [{"url": "https://one.example/"}]})
        assert httpx.get(f"{base_two}/pages", params={"url": "https://one.example/"}).status_code == 404
        log = tmp_path / "refused.log"
        with running(
            "-m", "service", "up", log=log, FRESHET_DATA_DIR=str(first / "data"), FRESHET_PORT="0"
        ) as p:
            assert p.wait(LONGEST_S) == 2
        assert "in use" in log.read_text()


def test_without_a_key_only_loopback_is_served_and_with_one_every_call_needs_it(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    log = tmp_path / "refused.log"
    with running("-m", "service", "up", log=log, FRESHET_HOST="0.0.0.0", FRESHET_DATA_DIR=data) as process:
        assert process.wait(LONGEST_S) == 2
    assert "loopback" in log.read_text()
    keys = tmp_path / "keys.log"
    with running("-m", "service", "keys", "create", "--role", "reader", log=keys, FRESHET_DATA_DIR=data) as p:
        assert p.wait(LONGEST_S) == 0
    secret = keys.read_text().split()[0]
    with freshet_up(tmp_path) as (base, _):
        assert httpx.get(f"{base}/admin/status").status_code == 401
        header = {"Authorization": f"Bearer {secret}"}
        assert httpx.get(f"{base}/admin/status", headers=header).status_code == 200
        assert httpx.get(f"{base}/next", headers=header).status_code == 403


def test_a_worker_reprices_pages_while_they_are_served(tmp_path: Path) -> None:
    with freshet_up(tmp_path, FRESHET_BANDWIDTH="200", FRESHET_MIN_DELAY_S="0", FRESHET_REPRICE_S="1") as (
        base,
        _,
    ):
        pages = [{"url": f"https://h{i % 5}.example/{i}", "change_rate_per_day": 1e5} for i in range(50)]
        httpx.put(f"{base}/pages", json={"pages": pages})
        with httpx.Client(base_url=base) as client:
            for _ in range(150):
                for page in client.get("/next", params={"wait": 5}).json()["pages"]:
                    outcome = {"lease": page["lease"], "changed": False}
                    client.post("/outcomes", json={"outcomes": [outcome]})
            deadline = time.monotonic() + LONGEST_S
            status = client.get("/admin/status").json()
            # A sweep may have come before the first crawl and seen nothing fresh.
            while (
                not status["expected_freshness"] or status["repriced_lag_s"] is None
            ) and time.monotonic() < deadline:
                time.sleep(0.2)
                status = client.get("/admin/status").json()
        assert status["price"] > 0
        assert 0 < status["expected_freshness"] <= 1
        assert status["repriced_lag_s"] < 30


def test_another_number_of_shards_is_refused_in_a_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with free_port() as port:
        flags = ("--port", str(port), "--data-dir", str(data))
        with running("-m", "service", "up", *flags, log=tmp_path / "first") as process:
            wait_ready(f"http://127.0.0.1:{port}", process)
        with running("-m", "service", "up", *flags, "--shards", "8", log=tmp_path / "second") as process:
            assert process.wait(LONGEST_S) == 2
    told = (tmp_path / "second").read_text()
    assert told == "freshet: this store was made with FRESHET_SHARDS=16, not 8\n"

"""`freshet import` and `freshet export`: every line accounted for, and a store that comes back the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from service.cli import main
from service.embedded import EmbeddedServer
from service.windows import MOST_LINE_BYTES
from tests.acceptance.processes import ROOT


@pytest.fixture
def url(redis_server: EmbeddedServer) -> str:
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url


def run(command: str, path: Path, url: str, *flags: str) -> int:
    return main([command, str(path), "--redis-url", url, "--shards", "4", *flags])


def exported(path: Path, url: str) -> list[dict[str, object]]:
    assert run("export", path, url) == 0
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda p: str(p["url"]))


def test_urls_and_pages_are_taken_and_bad_lines_reported(
    tmp_path: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "https://one.example/",
        "",
        '{"url": "https://two.example/", "importance": 3, "change_rate_per_day": 2}',
        "ftp://three.example/",
        '{"url": "https://four.example/", "surprise": 1}',
        "https://five.example/" + "x" * 2 * MOST_LINE_BYTES,
        '{"url": "https://six.example/", "precision": 0.9, "recall": 0.9, "signal_rate_per_day": 1000000}',
        "https://seven.example/",
    ]
    source = tmp_path / "pages"
    source.write_text("\n".join(lines))
    assert run("import", source, url, "--processes", "2") == 1
    told = capfd.readouterr().err
    assert "3 added, 0 updated, 4 refused" in told
    assert [line.partition(":")[0] for line in told.splitlines() if line.startswith("line ")] == [
        "line 4",
        "line 5",
        "line 6",
        "line 7",
    ]
    found = exported(tmp_path / "out", url)
    assert [page["url"] for page in found] == [
        "https://one.example/",
        "https://seven.example/",
        "https://two.example/",
    ]
    assert "change_rate_per_day" not in found[0]
    assert (found[2]["importance"], found[2]["change_rate_per_day"]) == (3.0, pytest.approx(2.0))


def test_what_was_exported_comes_back_as_it_was(tmp_path: Path, url: str) -> None:
    source, first, second = (tmp_path / name for name in ("pages", "first", "second"))
    rows: list[dict[str, object]] = [{"url": f"https://h{at % 7}.example/{at}"} for at in range(300)]
    rows[0] |= {"importance": 9, "change_rate_per_day": 4, "precision": 0.75, "recall": 0.5, "fixed": True}
    rows[1] |= {"last_crawled_at": "2026-01-02T03:04:05.678Z", "etag": '"a"', "min_crawls_per_day": 2}
    rows[2] |= {"last_crawled_at": 1700000000, "last_modified": "2023-11-01T00:00:00Z"}
    source.write_text("\n".join(map(json.dumps, rows)))
    assert run("import", source, url, "--processes", "1") == 0
    before = exported(first, url)
    crawled = [page for page in before if "last_crawled_at" in page]
    assert sorted(str(page["last_crawled_at"]) for page in crawled) == [
        "2023-11-14T22:13:20.000Z",
        "2026-01-02T03:04:05.678Z",
    ]
    assert len(before) == 300
    with redis.Redis.from_url(url) as client:
        client.flushall()
    assert run("import", first, url, "--processes", "1") == 0
    assert exported(second, url) == [
        {key: pytest.approx(value) if isinstance(value, float) else value for key, value in page.items()}
        for page in before
    ]


def test_a_page_given_up_stays_so(tmp_path: Path, url: str) -> None:
    source, out = tmp_path / "pages", tmp_path / "out"
    source.write_text('{"url": "https://one.example/", "state": "parked"}\nhttps://two.example/\n')
    for _ in range(2):
        assert run("import", source, url, "--processes", "1") == 0
        states = [(page["url"], page.get("state", "waiting")) for page in exported(out, url)]
        assert states == [("https://one.example/", "parked"), ("https://two.example/", "waiting")]


def test_a_file_without_a_good_line_is_refused_line_by_line(
    tmp_path: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "pages"
    source.write_text("nonsense\n\n")
    assert run("import", source, url, "--processes", "1") == 1
    assert "0 added, 0 updated, 1 refused" in capfd.readouterr().err


@pytest.mark.parametrize("command", [("export", "out"), ("keys", "list"), ("keys", "revoke", "--id", "x")])
def test_no_store_is_made_where_one_is_to_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FRESHET_REDIS_URL", raising=False)
    assert main([*command, "--data-dir", "wrong"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "there is no store in" in line
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_said_in_one_line(
    tmp_path: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("import", tmp_path / "none", url) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("freshet: ")
    assert "No such file" in line


def test_a_reader_who_has_seen_enough_of_an_export_is_no_failure(tmp_path: Path, url: str) -> None:
    source = tmp_path / "pages"
    source.write_text("\n".join(f"https://h{at}.example/" for at in range(20)))
    assert run("import", source, url, "--processes", "1") == 0
    command = [sys.executable, "-m", "service", "export", "--redis-url", url, "--shards", "4"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr.strip()) == (1, b"")  # but for the end of the progress bar


@pytest.mark.parametrize("processes", ["0", "65", "many"])
def test_a_wrong_number_of_processes_is_refused(processes: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["import", str(tmp_path / "none"), "--processes", processes])


def test_a_file_that_is_not_there_makes_no_store(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert main(["import", str(tmp_path / "nowhere"), "--data-dir", str(data)]) == 2
    assert "nowhere" in capfd.readouterr().err
    assert not data.exists()

"""`freshet bench --short`: every part but the peers, end to end, and nothing left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import pytest

from tests.acceptance.processes import LONGEST_S, ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@contextmanager
def bench(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The short bench, and a mark in the environment of all it starts."""
    mark = token_hex(8)
    environment = {**os.environ, "TMPDIR": str(folder), "FRESHET_TEST_MARK": mark}
    command = [
        sys.executable,
        "-m",
        "service",
        "bench",
        "--short",
        "--out",
        str(folder / "new" / "RESULTS.md"),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process, mark
        finally:
            process.kill()


def marked(mark: str) -> list[str]:
    """Processes with this mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a name short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as name:
        yield Path(name)


def test_the_short_bench_measures_every_part(folder: Path) -> None:
    with bench(folder) as (process, mark):
        said, _ = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, said
    text = (folder / "new" / "RESULTS.md").read_text()
    for part in ("noop", "script", "next", "batches", "growth", "reprice", "cluster", "cpu"):
        assert f"\n## {part}: " in text
    judged = [line for line in text.splitlines() if line.endswith(("reached |", "not measured |"))]
    assert [line for line in judged if "not measured" in line and "per core" not in line] == []
    assert len(judged) > 10
    assert (folder / "new" / "growth.png").stat().st_size > 1000
    assert marked(mark) == []
    assert not list(folder.glob("freshet-bench-*"))


def test_an_interrupted_bench_stops_all_it_started(folder: Path) -> None:
    with bench(folder) as (process, mark):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("registering"):
                break
        assert len(marked(mark)) > 3  # itself, the client, no-op servers, the store, the service
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 130, said
    assert marked(mark) == []
    assert not (folder / "new" / "RESULTS.md").exists()
    assert not list(folder.glob("freshet-bench-*"))

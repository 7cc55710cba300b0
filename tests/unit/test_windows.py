"""Lines of a file in blocks of few hosts: each once, whole, with its number."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.windows import LINES_PER_BLOCK, MOST_LINE_BYTES, Block, read_blocks

Read = Callable[[bytes], list[Block]]


def from_memory(content: bytes) -> list[Block]:
    return list(read_blocks(io.BytesIO(content)))


@pytest.fixture(params=["memory", "file", "pipe"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    """From wherever lines may come."""

    def from_file(content: bytes) -> list[Block]:
        (tmp_path / "lines").write_bytes(content)
        with (tmp_path / "lines").open("rb") as stream:
            return list(read_blocks(stream))

    def from_pipe(content: bytes) -> list[Block]:
        reads, writes = os.pipe()
        writer = threading.Thread(target=write_all, args=(os.fdopen(writes, "wb"), content))
        writer.start()
        with os.fdopen(reads, "rb") as stream:
            blocks = list(read_blocks(stream))
        writer.join()
        return blocks

    return {"memory": from_memory, "file": from_file, "pipe": from_pipe}[request.param]


def write_all(stream: BinaryIO, content: bytes) -> None:
    with stream:
        stream.write(content)


def test_blocks_hold_every_line_once_and_never_a_whole_long_one(read: Read) -> None:
    lines = [b"a%d\n" % at for at in range(LINES_PER_BLOCK + 3)]
    lines[5] = b"x" * 3 * MOST_LINE_BYTES + b"\n"
    blocks = read(b"".join(lines))
    assert [len(block) for block in blocks] == [LINES_PER_BLOCK, 3]
    assert len(blocks[0][5][1]) == MOST_LINE_BYTES + 1
    assert blocks[0][6] == (7, b"a6\n")
    assert blocks[1][-1] == (LINES_PER_BLOCK + 3, lines[-1])


def test_lines_of_a_host_are_in_a_row_and_in_their_order(read: Read) -> None:
    hosts = [f"h{at}.example" for at in range(7)] + ["a.b", "a.c", "sub-domain.of-a.long.host.example", "::1"]
    urls = [f"https://{hosts[at % len(hosts)]}/{at}" for at in range(2 * LINES_PER_BLOCK)]
    lines = [url if at % 2 else json.dumps({"url": url}) for at, url in enumerate(urls)]
    numbers = [n for block in read("\n".join(lines).encode()) for n, _ in block]
    assert sorted(numbers) == list(range(1, len(lines) + 1))
    rows = [(host, list(row)) for host, row in groupby(numbers, key=lambda number: (number - 1) % len(hosts))]
    assert len(rows) == len(hosts)
    assert all(row == sorted(row) for _, row in rows)


TWENTY = 20 * len("https://00.example\n")


@pytest.mark.parametrize(
    "bound", [{"LINES_PER_WINDOW": 20}, {"WINDOW_BYTES": TWENTY}, {"PIPE_BYTES": TWENTY - 10}]
)
def test_so_many_lines_are_put_in_order_as_memory_is_meant_for(
    monkeypatch: pytest.MonkeyPatch, bound: dict[str, int]
) -> None:
    for name, value in {"CHUNK_BYTES": 19, **bound}.items():
        monkeypatch.setattr(f"service.windows.{name}", value)
    lines = [b"https://%02d.example\n" % (at % 5) for at in range(50)]
    numbers = [number for block in from_memory(b"".join(lines)) for number, _ in block]
    windows = [numbers[at : at + 20] for at in range(0, 50, 20)]
    assert [(min(window), max(window)) for window in windows] == [(1, 20), (21, 40), (41, 50)]
    assert all(len(list(groupby(window, key=lambda number: number % 5))) == 5 for window in windows)


KINDS = b"", b"/", b"//", b"//h", b"//h/", b"https://one.example/1", b"a" * 40, b"////"


@given(
    lines=st.lists(st.sampled_from(KINDS)),
    chunk=st.integers(1, 50),
    window=st.integers(1, 10),
    ends=st.booleans(),
)
def test_whatever_stands_in_a_file_is_read_as_its_lines(
    lines: list[bytes], chunk: int, window: int, ends: bool
) -> None:
    content = b"\n".join(lines) + b"\n" * ends
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.windows.CHUNK_BYTES", chunk)
        patch.setattr("service.windows.LINES_PER_WINDOW", window)
        found = sorted(line for block in from_memory(content) for line in block)
    assert found == list(enumerate(content.splitlines(keepends=True), 1))

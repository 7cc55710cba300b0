"""The lines of a file in blocks of few hosts: pages of a host that come together cost the store half as much.

Of a line only its place and a number made of its host are held, so that very many are put in order together.
A file stays on its disk; of a pipe some is held at a time.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

Block = list[tuple[int, bytes]]  # lines with their numbers
Places = NDArray[np.int64]
LINES_PER_BLOCK = 10_000
LINES_PER_WINDOW = (
    10_000_000  # put in the order of their hosts, or little more: some 40 bytes are held of each
)
WINDOW_BYTES = 4 << 30  # of them, or little more: they are read in that order, best from memory
PIPE_BYTES = 128 << 20  # held at a time
MOST_LINE_BYTES = 65_536
CHUNK_BYTES = 8 << 20  # looked through at a time
REACH = 1024  # bytes after the begin of a line within which its host must end
WORD = 8  # bytes
NEWLINE, SLASH = ord("\n"), ord("/")
MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)  # odd, else arbitrary


def read_blocks(stream: BinaryIO) -> Iterator[Block]:
    """Every line with its number, those of a host one after the other and in their order; of a line that is
    too long only the beginning, enough to be refused.
    """
    number = 1
    for text in _texts(stream):
        begin = 0
        while begin < len(text):
            ends = _ends_of_lines(text, begin)
            begins = np.concatenate([[begin], ends[:-1]])
            order = np.argsort(_hosts_of(text, begins, ends), kind="stable")
            for at in range(0, len(order), LINES_PER_BLOCK):
                yield _block(text, begins, ends, order[at : at + LINES_PER_BLOCK], number)
            begin, number = int(ends[-1]), number + len(ends)


def _texts(stream: BinaryIO) -> Iterator[memoryview]:
    """All of a file, or whole lines of a pipe."""
    try:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # not a file, or an empty one
        while piece := stream.read(PIPE_BYTES):
            yield memoryview(piece if piece.endswith(b"\n") else piece + _rest_of_line(stream))
    else:
        yield memoryview(mapped)[stream.tell() :]


def _rest_of_line(stream: BinaryIO) -> bytes:
    rest = piece = stream.readline(MOST_LINE_BYTES + 1)
    while len(piece) > MOST_LINE_BYTES and not piece.endswith(b"\n"):
        piece = stream.readline(MOST_LINE_BYTES + 1)
    return rest


def _block(text: memoryview, begins: Places, ends: Places, chosen: Places, first: int) -> Block:
    most = np.minimum(ends[chosen], begins[chosen] + MOST_LINE_BYTES + 1)
    places = zip(chosen.tolist(), begins[chosen].tolist(), most.tolist(), strict=True)
    return [(first + nth, bytes(text[begin:end])) for nth, begin, end in places]


def _ends_of_lines(text: memoryview, begin: int) -> Places:
    """Where the lines of the window that begins there end."""
    found, lines = [], 0
    for at in range(begin, len(text), CHUNK_BYTES):
        ends = at + 1 + _places_of(NEWLINE, text[at : at + CHUNK_BYTES])
        found.append(ends)
        lines += len(ends)
        if lines >= LINES_PER_WINDOW or (lines and at + CHUNK_BYTES - begin >= WINDOW_BYTES):
            return np.concatenate(found)
    if not lines or text[-1] != NEWLINE:
        found.append(np.array([len(text)]))
    return np.concatenate(found)


def _places_of(character: int, text: memoryview) -> Places:
    return np.flatnonzero(np.frombuffer(text, np.uint8) == character)


def _hosts_of(text: memoryview, begins: Places, ends: Places) -> NDArray[np.uint64]:
    """A number per line, the same for lines of one host: of what stands between the second and the third
    slash, which is the host where the URL comes first.
    """
    numbers, at = np.zeros(len(begins), np.uint64), 0
    while at < len(begins) and len(text) >= WORD:
        chunk_begin = int(begins[at])
        following = int(np.searchsorted(begins, chunk_begin + CHUNK_BYTES))
        lines = slice(at, following)
        slashes = chunk_begin + _places_of(SLASH, text[chunk_begin : int(begins[following - 1]) + REACH])
        slashes = np.append(slashes, [len(text)] * 3)  # for lines that have fewer
        nth = np.searchsorted(slashes, begins[lines])
        host_ends = np.minimum(slashes[nth + 2], ends[lines])
        numbers[lines] = _numbers_of(text, slashes[nth + 1] + 1, host_ends)
        at = following
    return numbers


def _numbers_of(text: memoryview, begins: Places, ends: Places) -> NDArray[np.uint64]:
    """Of the first, the middle and the last bytes and how many there are: hosts that are alike in these may
    lie mixed, which only takes longer.
    """
    last = len(text) - WORD
    words = np.ndarray(last + 1, "<u8", text, strides=(1,))  # the word that begins at each byte
    sizes = np.clip(ends - begins, 0, REACH)
    is_long = sizes >= WORD
    middles = np.where(is_long, begins + (sizes - WORD) // 2, 0)
    firsts = words[np.minimum(begins, last)] << (8 * np.maximum(WORD - sizes, 0)).astype(np.uint64)
    parts = (firsts, words[middles] * is_long, words[np.where(is_long, ends - WORD, 0)] * is_long)
    numbers = sizes.astype(np.uint64) * np.uint64(MIX[-1])
    for part, factor in zip(parts, MIX, strict=False):
        numbers += part * np.uint64(factor)
    return np.where(sizes > 0, numbers, np.uint64(0))

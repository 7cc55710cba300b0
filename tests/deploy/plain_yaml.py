"""Reads the plain part of YAML the files of `deploy/` keep to: block mappings and lists, text, long text.

Whatever is beyond it is refused: flow collections, anchors, tags, tabs, odd indentation. Scalars stay text.
"""

from __future__ import annotations

import json
import re
from typing import Any

_ENTRY = re.compile(r'("[^"]*"|[^\s"\'\[\]{}#&*!|>%@`-][^#]*?|\$patch):(?:\s+(.*))?$')
Line = tuple[int, str]


def documents(text: str) -> list[Any]:
    """Every document of a file."""
    assert "\t" not in text, "tabs"
    parts = re.split(r"^---$", text, flags=re.MULTILINE)
    return [_Reader(part).document() for part in parts]


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines()]
        self._at = 0

    def document(self) -> Any:
        value = self._block(self._peek()[0])
        assert self._peek()[0] < 0, f"unexpected indentation: {self._peek()}"
        return value

    def _peek(self) -> Line:
        """The next line that says something; indentation -1 at the end."""
        while self._at < len(self._lines):
            indent, text = self._lines[self._at]
            if text and not text.startswith("#"):
                return indent, text
            self._at += 1
        return -1, ""

    def _block(self, indent: int) -> Any:
        is_list = self._peek()[1].startswith("- ")
        return self._list(indent) if is_list else self._mapping(indent)

    def _list(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while self._peek()[0] == indent and self._peek()[1].startswith("- "):
            text = self._peek()[1][2:]
            if _ENTRY.match(text) and not text.startswith('"'):
                self._lines[self._at] = (indent + 2, text)  # a mapping that begins behind the dash
                found.append(self._mapping(indent + 2))
            else:
                self._at += 1
                found.append(self._scalar(text, indent))
        return found

    def _mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._peek()[0] == indent and not self._peek()[1].startswith("- "):
            text = self._peek()[1]
            entry = _ENTRY.match(text)
            assert entry, f"not plain: {text}"
            name = entry[1].strip('"')
            assert name not in found, f"said twice: {name}"
            self._at += 1
            found[name] = self._value(entry[2], indent)
        return found

    def _value(self, rest: str | None, indent: int) -> Any:
        if rest:
            return self._scalar(rest, indent)
        following = self._peek()[0]
        return self._block(following) if following > indent else None

    def _scalar(self, text: str, indent: int) -> str:
        if text in ("|", "|-", ">-"):
            return self._long(text, indent)
        if text.startswith('"'):
            return str(json.loads(text))
        is_plain = text[0] not in "'[]{}&!%@`|>" and " #" not in text and ": " not in text
        assert is_plain, f"not plain: {text}"
        return text

    def _long(self, style: str, indent: int) -> str:
        lines: list[str] = []
        start = None
        while self._at < len(self._lines):
            depth, text = self._lines[self._at]
            if text and depth <= indent:
                break
            start = depth if start is None else start
            lines.append(" " * (depth - start) + text)
            self._at += 1
        joined = (" " if style == ">-" else "\n").join(lines).rstrip()
        return joined + "\n" if style == "|" else joined

"""Child processes that do not outlive their parent, however it ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Runs in the child and becomes the command. It asks Linux for SIGTERM when the parent dies; a
# preexec_fn would do so between fork and exec, where another thread's locks may be held for ever.
_LAUNCHER = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent died before its child started")
os.execv(sys.argv[2], sys.argv[2:])
"""


def tied(*command: str) -> list[str]:
    """The command (an absolute path first), tied to the thread that will start it."""
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]


def tie() -> None:
    """Tie this process to its parent, if that started it to share its work (on Linux, as `tied` does)."""
    parent = multiprocessing.parent_process()
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent.pid:
        sys.exit("the parent died before its child started")


@contextmanager
def stopped_after(process: subprocess.Popen[bytes], patience_s: float) -> Iterator[subprocess.Popen[bytes]]:
    """The process, asked to end when the block does, and ended if that takes too long."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

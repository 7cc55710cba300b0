"""Child processes that do not outlive their parent, however it ends."""

from __future__ import annotations

import os
import sys

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

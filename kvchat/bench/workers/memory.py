"""The memory of a process, from inside and of a child."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """The most resident memory that this process ever had.

    Linux counts into `ru_maxrss` what the process was before it became this program, so its own record is asked there.
    """
    if _STATUS.exists() and (peak := re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text())):
        return int(peak[1]) * 1024
    return maxrss_bytes(resource.getrusage(resource.RUSAGE_SELF))


def maxrss_bytes(usage: resource.struct_rusage) -> int:
    """`ru_maxrss` in bytes: it is in KiB everywhere but on macOS."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

"""What a measurement was made on."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """The processor's name for itself, or its architecture where it has none."""
    if platform.system() == "Darwin":
        return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
    name = re.search(r"^model name\s*: (.*)", _CPUINFO.read_text(), re.MULTILINE) if _CPUINFO.exists() else None
    return name[1].strip() if name else platform.processor() or platform.machine()

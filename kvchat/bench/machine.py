"""What a measurement was made on, and with."""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import kvchat

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    """That this process may use."""
    memory_bytes: int
    accelerator: str
    """The name of the CUDA device, or nothing."""
    versions: dict[str, str]

    def __str__(self) -> str:
        where = f"{self.accelerator} with {self.cpu}" if self.accelerator else self.cpu
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{where}, {self.cores} cores, {self.memory_bytes / 2**30:.0f} GiB; {versions}"


def this_machine() -> Machine:
    import psutil
    import torch

    from engine.runner import usable_cores

    return Machine(
        cpu=cpu_name(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        accelerator=torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        versions={
            "kvchat": kvchat.__version__,
            "Python": platform.python_version(),
            "torch": torch.__version__,
            "Numba": version("numba"),
            platform.system(): platform.release(),
        },
    )


def cpu_name() -> str:
    """The processor's name for itself, or its architecture where it has none."""
    if platform.system() == "Darwin":
        return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
    name = re.search(r"^model name\s*: (.*)", _CPUINFO.read_text(), re.MULTILINE) if _CPUINFO.exists() else None
    return name[1].strip() if name else platform.processor() or platform.machine()

"""Files made from a model and kept beside it."""

from __future__ import annotations

import hashlib
import logging
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError

log = logging.getLogger(__name__)


SAMPLES, SAMPLE_BYTES = 16, 1 << 16
"""How much of a file tells it from others: its head and pieces all over it, where other weights are other bytes."""


def model_files(folder: Path) -> list[Path]:
    """The model's settings and weights."""
    return sorted((folder / "config.json", *folder.glob("model*.safetensors*")))


def fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """Another one when the model's settings or weights are others, the same for a copy: names, sizes and CRC-32 of
    samples of their files. At most 1 MiB of each file is read."""
    return [(path.name, path.stat().st_size, _checksum(path)) for path in model_files(folder)]


def _checksum(path: Path) -> int:
    step, checksum = max(path.stat().st_size // SAMPLES, SAMPLE_BYTES), 0
    with path.open("rb", buffering=0) as file:
        for sample in range(SAMPLES):
            file.seek(sample * step)
            checksum = zlib.crc32(file.read(SAMPLE_BYTES), checksum)
    return checksum


class Beside:
    """The file `name` in a model's folder, or one in `spare_folder` where that folder cannot be written. One for each
    model folder, not for each state of it: what is out of date is replaced."""

    def __init__(self, folder: Path, name: str, spare_folder: Path) -> None:
        path = folder.resolve()
        spare = f"{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}-{name}"
        self.paths = (folder / name, spare_folder / spare)
        """Where to look, in this order."""

    def write(self, write: Callable[[Path], object]) -> bool:
        """Have `write(path)` write it, and put it in its place when it is whole. False, and logged, when neither place
        can be written."""
        for path in self.paths:
            unfinished = path.with_suffix(f".{os.getpid()}.partial")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write(unfinished)
                unfinished.replace(path)
                return True
            except (OSError, SafetensorError) as error:
                log.warning("%s cannot be written: %s", path, error)
                with suppress(OSError):
                    unfinished.unlink()
        return False

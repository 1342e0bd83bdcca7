"""Writing files that somebody else may read at any time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write a file in UTF-8, in place of what was there and with its permissions: it is complete, or as it was before.
    A symbolic link keeps leading to it. Raises OSError."""
    path = path.resolve()
    mode = path.stat().st_mode if path.exists() else None
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        if mode is not None:
            os.chmod(unfinished, mode)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise

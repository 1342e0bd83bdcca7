"""Room on the disk: asked for before a model is fetched, and recognised when it runs out on the way."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from engine.errors import ModelError


def require_space(folder: Path, needed: int) -> None:
    """Raise ModelError when the disk of an existing folder has fewer than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(f"the disk is too full: {needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free")


def is_full(error: OSError) -> bool:
    """Whether this is a full disk, a used-up quota or the limit of a file's size."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

"""What can go wrong with the history; str(error) is one line fit to show."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path


class StoreError(Exception):
    """The history cannot be opened, read or written, or what was asked for is not in it."""


def explain(error: sqlite3.Error, path: Path) -> StoreError | None:
    """Say what an SQLite failure means to the user; None if it can only be a mistake of this program."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_CONSTRAINT_FOREIGNKEY"):
        return StoreError("the conversation or message this belongs to no longer exists: was it deleted elsewhere?")
    if name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")) and _is_full(path.parent):
        return StoreError(f"{path}: {FULL}")
    for prefix, meaning in _MEANINGS.items():
        if name.startswith(prefix):
            return StoreError(f"{path}: {meaning}")
    return None


def unwritable(error: OSError, folder: Path) -> StoreError:
    return StoreError(f"{folder}: {FULL if error.errno == errno.ENOSPC else UNWRITABLE}")


def _is_full(folder: Path) -> bool:
    """Whether there may be no room for the files beside the history that SQLite reads it with: it does not say so."""
    return folder.exists() and shutil.disk_usage(folder).free < _LEAST_BYTES


_LEAST_BYTES = 1 << 20
_DAMAGED = "the history is damaged or not a kvchat database: move it away to start fresh, or put a backup in its place"
FULL = "the disk is full: free some space and try again"
UNWRITABLE = "cannot write here: make the folder writable, or set XDG_DATA_HOME to one that is"
_MEANINGS = {
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_FULL": FULL,
    "SQLITE_BUSY": "another program keeps the history locked: close it and try again",
    "SQLITE_READONLY": UNWRITABLE,
    "SQLITE_CANTOPEN": UNWRITABLE,
    "SQLITE_PERM": UNWRITABLE,
    "SQLITE_IOERR": "the disk failed to read or write: check it, or set XDG_DATA_HOME to a folder on another one",
}
"""By the beginning of SQLite's error name, which extended codes continue."""

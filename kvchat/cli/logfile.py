"""The log: a file, since the terminal belongs to the chat."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from kvchat import paths

MAX_BYTES = 1 << 20
FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


def log_to_file() -> Path:
    """Send warnings and worse of this process to the log file and return its path. Raises OSError."""
    path = paths.log_dir() / "kvchat.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8")
    logging.basicConfig(level=logging.WARNING, format=FORMAT, handlers=[handler], force=True)
    return path

"""The log: a file, since the terminal belongs to the chat."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

import click

from kvchat import paths

MAX_BYTES = 1 << 20
FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


def log_to_file() -> Path:
    """Send warnings and worse of this process to the log file and return its path.

    Raises click.ClickException when that cannot be written.
    """
    path = paths.log_dir() / "kvchat.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        problem = f"cannot write the log {path}: {error.strerror}; set XDG_STATE_HOME to another folder"
        raise click.ClickException(problem) from None
    logging.basicConfig(level=logging.WARNING, format=FORMAT, handlers=[handler], force=True)
    return path

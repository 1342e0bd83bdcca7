"""What an error is in one line, for whoever reads the terminal or a report."""

from __future__ import annotations

import click


def explain(error: Exception) -> str:
    """Of an error that is being handled. The traceback of one that nobody expected is logged."""
    from engine.errors import EngineError
    from kvchat.store.errors import StoreError
    from kvchat.toml_file import ConfigError

    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, (EngineError, ConfigError, StoreError)):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    summary = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {summary}; this is a bug, {_log_traceback()}"


def _log_traceback() -> str:
    """Log the traceback being handled and say where it can be read."""
    import logging

    from kvchat.cli.logfile import log_to_file

    try:
        path = log_to_file()
    except click.ClickException:
        return "run it again with --debug to see where"
    logging.getLogger(__name__).exception("unexpected error")
    return f"the details are in {path}"

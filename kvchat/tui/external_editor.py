"""Writing a message in the user's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from kvchat.tui.format import typed

FALLBACK = "vi"


class EditorError(Exception):
    """The editor could not be used; one line."""


def edit(text: str) -> str:
    """Have a text edited by $VISUAL or $EDITOR, which gets the terminal, and return what was saved without the newline
    at its end. Raises EditorError."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or FALLBACK
    try:
        with tempfile.TemporaryDirectory(prefix="kvchat-") as folder:
            path = Path(folder, "message.md")
            path.write_text(text, encoding="utf-8")
            ended = subprocess.run([*shlex.split(command), str(path)])
            if ended.returncode:
                raise EditorError(f"{command} ended with status {ended.returncode}: the message is as it was")
            return typed(path.read_text(encoding="utf-8")).removesuffix("\n")
    except (OSError, ValueError) as error:
        raise EditorError(f"{command} cannot be used: {error}; set $EDITOR to another editor") from error

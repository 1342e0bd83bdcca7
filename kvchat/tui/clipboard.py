"""The system's clipboard, for terminals that do not take text for it (OSC 52)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

TIMEOUT_S = 2.0
_PROGRAMS: Sequence[tuple[str, Sequence[str]]] = (
    ("", ("pbcopy",)),
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
)
"""An environment variable that must be set, if any, and the command that reads what to copy."""


def copy(text: str) -> bool:
    """Hand `text` to the first clipboard program of this desktop; False if there is none or it does not work."""
    for variable, command in _PROGRAMS:
        if (not variable or os.environ.get(variable)) and shutil.which(command[0]):
            silent = subprocess.DEVNULL
            try:
                return not subprocess.run(
                    command, input=text.encode(), stdout=silent, stderr=silent, timeout=TIMEOUT_S, check=False
                ).returncode
            except (OSError, subprocess.TimeoutExpired):
                return False
    return False

"""Pictures of screens that are kept and compared: SVG, which any browser shows, without what changes by itself."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from textual.app import App

FOLDER = Path(__file__).parent / "looks"
RENEWS = "KVCHAT_RENEW_LOOKS"
"""The environment variable with which the kept ones are written, not compared."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d&#160;\d\d:\d\d")
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Fetched from elsewhere; the browser's own fixed font does."""
_UNIQUE = re.compile(r"terminal-\d+")
_CURVE = str.maketrans("▂▃▄▅▆▇█", "▁▁▁▁▁▁▁")
"""Curves over time."""


def look(app: App[None]) -> str:
    """The screen as it is now."""
    svg = app.export_screenshot(simplify=True).translate(_CURVE)
    svg = _UNIQUE.sub("terminal", _FONT.sub("", _DATE.sub("2026-01-01&#160;00:00", svg)))
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def compare(name: str, now: str) -> None:
    """Compare a look with the one that is kept, or keep it."""
    file = FOLDER / f"{name}.svg"
    if os.environ.get(RENEWS):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(now)
        return
    changes = difflib.unified_diff(file.read_text().splitlines(), now.splitlines(), "kept", "now", n=0, lineterm="")
    found = "\n".join(changes)
    assert not found, f"{name} looks different; if that is meant: make snapshots, and look at the pictures\n{found}"

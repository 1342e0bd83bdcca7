"""What stands on a screen, as a text that can be kept and compared: its characters, then their styles."""

from __future__ import annotations

import difflib
import os
import re
from itertools import groupby
from pathlib import Path

from textual.app import App

FOLDER = Path(__file__).parent / "looks"
RENEWS = "KVCHAT_RENEW_LOOKS"
"""The environment variable with which the kept ones are written, not compared."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_CURVE = str.maketrans("▂▃▄▅▆▇█", "▁▁▁▁▁▁▁")
"""Curves over time."""


def look(app: App[None]) -> str:
    """The characters of the screen, line by line; then for each line the letters of the styles, each with the number of
    cells it goes on for; then what the letters mean."""
    letters: dict[str, str] = {}
    text, styles = [], []
    for strip in app.screen._compositor.render_strips():
        text.append(_DATE.sub("2026-01-01 00:00", strip.text.translate(_CURVE)).rstrip())
        cells = ((letters.setdefault(str(style), _letter(len(letters))), width) for style, width in _runs(strip))
        styles.append(
            " ".join(f"{letter}{sum(width for _, width in run)}" for letter, run in groupby(cells, key=_first))
        )
    meanings = [f"{letter} {style}" for style, letter in letters.items()]
    return "\n".join([*text, "", *styles, "", *meanings]) + "\n"


def compare(name: str, looks: dict[str, str]) -> None:
    """Compare the looks of screens, by title, with those that are kept, or keep them."""
    file = FOLDER / f"{name}.txt"
    text = "\n".join(f"=== {title}\n{each}" for title, each in looks.items())
    if os.environ.get(RENEWS):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text)
        return
    changes = difflib.unified_diff(file.read_text().splitlines(), text.splitlines(), "kept", "now", n=1, lineterm="")
    found = "\n".join(changes)
    assert not found, f"{name} looks different; if that is meant: make snapshots, and look at the difference\n{found}"


def _letter(number: int) -> str:
    """a to z, then aa, ab and so on."""
    high, low = divmod(number, 26)
    return (_letter(high - 1) if high else "") + chr(ord("a") + low)


def _first(pair: tuple[str, int]) -> str:
    return pair[0]


def _runs(strip: object) -> list[tuple[object, int]]:
    return [(segment.style, segment.cell_length) for segment in strip]  # type: ignore[attr-defined]

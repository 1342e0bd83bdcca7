"""Small charts of text."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values, scaled to the largest of them; where there is none yet, a flat line."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    levels = (min(len(_BARS) - 1, int(value / top * len(_BARS))) if top > 0 else 0 for value in shown)
    return "".join(_BARS[level] for level in levels).rjust(width, _BARS[0])


def bar(parts: Sequence[tuple[int, str]], total: int, width: int) -> Content:
    """A line of `width` cells; each (amount, style) fills its share of `total`, at least a cell if there is any."""
    filled = 0
    cells = []
    for amount, style in parts:
        share = min(max(1, round(amount / total * width)) if amount and total else 0, width - filled)
        filled += share
        cells.append(("━" * share, style))
    return Content.assemble(*cells, ("━" * (width - filled), "$kv-free"))


def row(label: str, value: str, width: int) -> Content:
    """A label on the left, its value on the right."""
    return Content.assemble(quiet(label), " " * max(1, width - len(label) - len(value)), value)


def quiet(text: str) -> Content:
    """Text that stands back."""
    return Content.styled(text, "$foreground-muted")

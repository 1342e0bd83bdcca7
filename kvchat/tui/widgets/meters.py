"""Small charts of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` of the values, on the scale of all of them, see `scale`; where there is none yet, a flat
    line."""
    shown = values[-width:]
    top = scale(values)
    levels = (min(len(_BARS) - 1, int(value / top * len(_BARS))) if top > 0 else 0 for value in shown)
    return "".join(_BARS[level] for level in levels).rjust(width, _BARS[0])


def scale(values: Sequence[float]) -> float:
    """The end of the scale: 1, 2 or 5 times a power of ten, so that it stays where it is while the values move; 0
    where there is none above 0."""
    top = max(values, default=0.0)
    if top <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(top))
    return next((step * power for step in (1, 2, 5) if top <= step * power), 10 * power)


def charted(label: str, values: Sequence[float], value: str, width: int) -> Content:
    """A row with the sparkline of earlier values between the label and the value of now."""
    room = min(12, width - len(label) - len(value) - 4)
    if room < 1 or len(values) < 2:
        return row(label, value, width)
    chart = sparkline(values, min(room, len(values)))
    return Content.assemble(
        quiet(label), " " * (width - len(label) - len(chart) - len(value) - 2), (chart, "$kv-cached"), "  ", value
    )


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
    return Content.assemble(quiet(label), " " * max(1, width - cell_len(label) - cell_len(value)), value)


def quiet(text: str) -> Content:
    """Text that stands back."""
    return Content.styled(text, "$foreground-muted")

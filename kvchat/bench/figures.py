"""How figures are written in tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def number(value: float) -> str:
    """Three significant digits, or all digits before the point; an integer as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def spread(values: Sequence[float]) -> str:
    """The median, and from where to where several measurements lie."""
    middle, low, high = median(values), min(values), max(values)
    return number(middle) if low == high else f"{number(middle)} ({number(low)}-{number(high)})"


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """The median of the rounds' ratios: what slows a round down, or makes its work more, does so to both."""
    return median(value / other for value, other in zip(values, others, strict=True))

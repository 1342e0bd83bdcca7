"""One line of a table of measurements."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    what: str
    value: float
    unit: str
    ceiling: float | None = None
    """What it is measured against, in the same unit."""
    of: str = "memory"
    """The name of that."""

    def __str__(self) -> str:
        share = f"  {self.value / self.ceiling:4.0%} of {self.of}" if self.ceiling else ""
        return f"{self.what:<56}{self.value:10.1f} {self.unit:<9}{share}"

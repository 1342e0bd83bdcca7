"""Where things stand that lie below one another and are not all drawn: their heights are known or guessed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

NEAR, DRAWN, FAR = 1, 2, 5
"""Heights of the view, above and below it. What is NEAR has to be drawn, then everything up to DRAWN is; what is beyond
FAR is taken away."""


class Extents:
    """Rows, counted from the top of the first item."""

    def __init__(self, heights: Iterable[int]) -> None:
        """All of them positive."""
        self.tops = list(accumulate(heights, initial=0))
        """Of each item, and the end of the last."""

    def __len__(self) -> int:
        return len(self.tops) - 1

    @property
    def height(self) -> int:
        return self.tops[-1]

    def at(self, row: float) -> int:
        """Index of the item that has the row, of the nearest one when none has it."""
        return min(max(0, bisect_right(self.tops, row) - 1), len(self) - 1)

    def between(self, top: float, bottom: float) -> range:
        """The items that have rows between the two, at least the nearest one."""
        if not len(self):
            return range(0)
        first = self.at(top)
        return range(first, max(first + 1, min(bisect_left(self.tops, bottom), len(self))))

    def rows(self, items: range) -> int:
        """The height of some neighbours together."""
        return self.tops[items.stop] - self.tops[items.start]


@dataclass(frozen=True, slots=True)
class View:
    """The rows that the user sees."""

    top: int
    height: int

    def wanted(self, extents: Extents, drawn: range) -> range:
        """The items to draw when `drawn` are; the same as long as that will do."""
        near, wanted, far = (self._around(extents, heights) for heights in (NEAR, DRAWN, FAR))
        will_do = far.start <= drawn.start <= near.start and near.stop <= drawn.stop <= far.stop
        return drawn if will_do else wanted

    def _around(self, extents: Extents, heights: float) -> range:
        return extents.between(self.top - heights * self.height, self.top + (1 + heights) * self.height)


def guessed_rows(text: str, width: int) -> int:
    """About how many rows a text takes."""
    return sum(1 + len(line) // max(1, width) for line in text.split("\n"))

"""Widgets that are drawn line by line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget


class Lines(Widget):
    """Draws lines, and later only those that changed: what it shows changes all the time, and little of it. Each is
    one row; what does not fit is cut."""

    def __init__(self, classes: str = "") -> None:
        super().__init__(classes=classes)
        self._drawn: Sequence[Content] = ()

    @abstractmethod
    def lines(self, width: int) -> Sequence[Content]:
        """What to draw, in so many columns."""

    def redraw(self) -> None:
        """There may be other lines."""
        if not self.size:
            return  # it is hidden; when it is not any more, all is drawn
        before, self._drawn = self._drawn, self._rows()
        if len(self._drawn) != len(before):
            self.refresh(layout=True)
        elif changed := [
            Region(0, y, self.size.width, 1)
            for y, (old, new) in enumerate(zip(before, self._drawn, strict=True))
            if not new.is_same(old)
        ]:
            self.refresh(*changed)

    def render(self) -> Content:
        self._drawn = self._rows()
        return Content("\n").join(self._drawn)

    def _rows(self) -> Sequence[Content]:
        width = self.size.width
        lines = (Content(" ").join(line.split()).expand_tabs() for line in self.lines(width))
        return [line.truncate(width, ellipsis=True) for line in lines]

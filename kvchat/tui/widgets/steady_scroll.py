"""A scroll view that keeps what is read in place, and keeps the end in view for who is there."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult
from textual.message import Message
from textual.widget import Widget

from kvchat.tui.widgets.backdrop import Backdrop


@dataclass(frozen=True, slots=True)
class Place:
    """What stands in the first row of the view: a row of a message, or of a section of a long one."""

    message_id: int
    row: int = 0
    section: int = 0


class SteadyScroll(VerticalScroll, Backdrop, can_focus=False):
    """The end stays in view until the user scrolls up, and again once they are back there; otherwise what they read
    stays where it is, whatever happens above and below."""

    class FollowChanged(Message):
        """The end stays in view from now on, or does not."""

        def __init__(self, follows: bool) -> None:
            super().__init__()
            self.follows = follows

    def __init__(self) -> None:
        super().__init__()
        self.place: Place | None = None
        """What is kept in place; None while the end is."""
        self.regions: dict[Widget, Region] = {}
        """Where the children are after the last layout, with their margins below."""
        self._follows = True

    @abstractmethod
    def place_at(self, row: int) -> Place | None:
        """What stands in a row after the last layout."""

    @abstractmethod
    def row_of(self, place: Place) -> int | None:
        """Where a place is after the last layout; None when it is not there."""

    def laid_out(self, width: int) -> None:
        """The children have other regions."""

    def moved(self) -> None:
        """The user scrolled."""

    def keep_at_top(self, place: Place) -> None:
        """From the next layout on."""
        self.release_anchor()
        self.place = place

    def scroll_pages(self, pages: int) -> None:
        """Scroll now: by the time that Textual's own way of it acts, rows above may have come or gone."""
        self.scroll_relative(y=pages * self.size.height, animate=False, immediate=True)

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Textual asks for it right before it draws: the one moment to correct the scroll position unseen."""
        arranged = super().arrange(size, optimal)
        self.regions = {each.widget: each.region.grow((0, 0, each.margin.bottom, 0)) for each in arranged.placements}
        self.laid_out(size.width)
        if self.place and (row := self.row_of(self.place)) is not None:
            row = max(0, min(row, arranged.total_region.bottom - size.height))
            if row != round(self.scroll_y):
                self.set_reactive(Widget.scroll_y, row)
                self.set_reactive(Widget.scroll_target_y, row)
                self.vertical_scrollbar.position = row
        return arranged

    def watch_virtual_size(self) -> None:
        """Anchor what overflows, and only that: Textual would push shorter content down to the end."""
        overflows = self.virtual_size.height > self.size.height
        if overflows == self.is_anchored:
            return
        if overflows and self.place:
            self._anchored = self._anchor_released = True
        else:
            self.anchor(overflows)
        if not overflows:
            self.scroll_home(animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.tell_of_following()
        self.place = None if self._follows else self.place_at(round(new_value))
        self.moved()

    def tell_of_following(self) -> None:
        follows = not (self.is_anchored and self._anchor_released)
        if follows != self._follows:
            self._follows = follows
            self.post_message(self.FollowChanged(follows))

"""The open conversations, one tab each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.app import ComposeResult
from textual.containers import HorizontalScroll
from textual.content import Content
from textual.events import Click, MouseDown, MouseMove
from textual.message import Message
from textual.widgets import Static

from kvchat.tui.format import printable, shorten

TITLE_WIDTHS = (8, 28)
"""Characters of a title that are shown, at least and at most, as far as there is space."""
AROUND_TITLE, AROUND_TABS = 6, 9
"""Columns for the number and the badge of each tab; for the switch, the cross and the new tab of them all."""
Badge = Literal["", "queued", "busy", "unread", "failed"]
BADGES: dict[Badge, tuple[str, str]] = {
    "queued": ("○", "$foreground-muted"),
    "busy": ("●", "$accent"),
    "unread": ("◆", "$primary"),
    "failed": ("!", "$error"),
}


@dataclass(frozen=True, slots=True)
class TabView:
    """What a tab shows."""

    conversation_id: str
    title: str
    badge: Badge
    active: bool


class _OfTab(Message):
    def __init__(self, conversation_id: str) -> None:
        super().__init__()
        self.conversation_id = conversation_id


class TabLabel(Static):
    """One tab: a click shows its conversation, a double click renames it, a middle click or one on the cross closes
    it, and it can be dragged to another place."""

    ALLOW_SELECT = False
    CROSS = " ✕ "

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._view: TabView | None = None

    def show(self, number: int, view: TabView, title_width: int) -> None:
        """Show this conversation, with at most so many characters of its title."""
        self._view = view
        self.set_class(view.active, "-active")
        badge = BADGES.get(view.badge, ("", ""))
        self.update(
            Content.assemble(
                (f" {number} ", "$foreground-muted"),
                shorten(printable(view.title), title_width),
                (f" {badge[0]}" if badge[0] else "", badge[1]),
                (self.CROSS if view.active else " ", "$foreground-muted"),
            )
        )

    def on_mouse_down(self, event: MouseDown) -> None:
        if self._view and event.button == 1:
            self.post_message(TabBar.Seized(self._view.conversation_id))

    def on_mouse_move(self, event: MouseMove) -> None:
        if self._view:
            right_half = event.x >= self.size.width // 2
            self.post_message(TabBar.DraggedOver(self._view.conversation_id, right_half))

    def on_click(self, event: Click) -> None:
        if self._view is None:
            return
        if event.chain == 2 and event.button == 1:
            self.post_message(TabBar.RenameWanted())
            return
        on_cross = self._view.active and event.x >= self.size.width - len(self.CROSS)
        wanted = TabBar.CloseWanted if on_cross or event.button == 2 else TabBar.TabWanted
        self.post_message(wanted(self._view.conversation_id))


class NewTab(Static):
    """A click opens a new tab."""

    def on_click(self) -> None:
        self.post_message(TabBar.NewWanted())


class SidebarSwitch(Static):
    """A click opens or closes the list of all conversations."""

    def on_click(self) -> None:
        self.post_message(TabBar.SidebarWanted())


class TabBar(HorizontalScroll, can_focus=False):
    """Shows the tabs it is given and says what the user wants of them."""

    class TabWanted(_OfTab):
        """The user wants to see this conversation."""

    class CloseWanted(_OfTab):
        """The user wants this tab closed."""

    class MoveWanted(_OfTab):
        """The user drags this tab so many places to the right."""

        def __init__(self, conversation_id: str, step: int) -> None:
            super().__init__(conversation_id)
            self.step = step

    class Seized(_OfTab):
        """The mouse button went down on this tab."""

    class DraggedOver(_OfTab):
        """The mouse moved over this tab."""

        def __init__(self, conversation_id: str, right_half: bool) -> None:
            super().__init__(conversation_id)
            self.right_half = right_half

    class RenameWanted(Message):
        """The user wants another title for the tab that is shown."""

    class NewWanted(Message):
        """The user wants another tab."""

    class SidebarWanted(Message):
        """The user wants the list of all conversations, or no more."""

    def __init__(self) -> None:
        super().__init__()
        self._views: list[TabView] = []
        self._dragged = ""
        """The tab under the mouse button that is down."""

    def compose(self) -> ComposeResult:
        yield SidebarSwitch(" ≡ ", markup=False)
        yield NewTab(" + ", markup=False)

    def show(self, views: list[TabView]) -> None:
        """Show these tabs."""
        if views != self._views:
            self._views = views
            self.call_later(self._draw)

    def drop(self) -> None:
        """The mouse button is up."""
        self._dragged = ""

    def on_tab_bar_seized(self, event: Seized) -> None:
        event.stop()
        self._dragged = event.conversation_id

    def on_tab_bar_dragged_over(self, event: DraggedOver) -> None:
        """Move the dragged tab once it is past the middle of another: tabs of different widths would flicker."""
        event.stop()
        ids = [view.conversation_id for view in self._views]
        if self._dragged in ids and event.conversation_id in ids:
            step = ids.index(event.conversation_id) - ids.index(self._dragged)
            if step and event.right_half == (step > 0):
                self.post_message(self.MoveWanted(self._dragged, step))

    def on_resize(self) -> None:
        self.call_later(self._draw)

    async def _draw(self) -> None:
        views = self._views
        labels = list(self.query(TabLabel))
        for label in labels[len(views) :]:
            await label.remove()
        added = [TabLabel() for _ in views[len(labels) :]]
        await self.mount_all(added, before=self.query_one(NewTab))
        for number, (label, view) in enumerate(zip([*labels, *added], views, strict=False), 1):
            label.show(number, view, self._title_width)
            if view.active:
                self.call_after_refresh(label.scroll_visible, animate=False)

    @property
    def _title_width(self) -> int:
        shortest, longest = TITLE_WIDTHS
        share = (self.size.width - AROUND_TABS) // max(1, len(self._views))
        return max(shortest, min(longest, share - AROUND_TITLE))

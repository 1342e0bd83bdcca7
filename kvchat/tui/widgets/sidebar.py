"""All conversations beside the one that is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from itertools import groupby

from textual.binding import Binding
from textual.content import Content
from textual.events import MouseUp
from textual.message import Message
from textual.widgets.option_list import Option

from kvchat.tui.format import hashtags, printable
from kvchat.tui.widgets.finder import Finder
from kvchat.tui.widgets.meters import quiet
from kvchat.tui.widgets.tab_bar import BADGES, TabView
from kvchat.tui.workspace import Stored, Workspace

COVERING_BELOW = 80
"""Columns of the screen under which it lies over the conversation instead of beside it."""
CROWDED_BELOW = 130
"""Columns under which the panel gives way to it."""
REFRESH_S = 0.2


class Sidebar(Finder):
    """Lists the conversations by day, those that contain what is typed without the days; what is open has its badge."""

    BINDINGS = [Binding("escape", "leave", "Back to the message", show=False)]

    class Left(Message):
        """The keys are the composer's again."""

    def __init__(self, workspace: Workspace, is_open: bool) -> None:
        super().__init__(workspace, "", "Find a conversation", " · Esc goes back", texts=False)
        self.display = is_open
        self._views: Mapping[str, TabView] = {}

    def on_mount(self) -> None:
        if self.display:
            self.search()

    @property
    def covers(self) -> bool:
        """It lies over the conversation."""
        return self.screen.size.width < COVERING_BELOW

    def fit(self) -> None:
        """The screen has another size, or the list was opened or closed."""
        if not self.is_attached:
            return
        self.set_class(self.covers, "-covers")
        self.screen.set_class(self.display and self.screen.size.width < CROWDED_BELOW, "-crowded")

    def show(self, views: Sequence[TabView]) -> None:
        """These are the tabs."""
        by_id = {view.conversation_id: view for view in views}
        if by_id != self._views:
            self._views = by_id
            self.renew()

    def renew(self) -> None:
        """Something changed in the history or in the tabs."""
        if self.display and self.is_mounted and not self.searching:
            self.search_soon(REFRESH_S)

    def toggle(self) -> None:
        """Open it and give it the keys; from within close it; from elsewhere give it the keys."""
        if self.has_focus_within:
            self.close()
            return
        if not self.display:
            self._set_open(True)
            self.search()
        self.words.focus()

    def close(self) -> None:
        self._set_open(False)
        self.leave()

    def action_leave(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the keys back, without a trace of what was typed; what covers the conversation goes."""
        self.words.value = ""
        if self.covers:
            self._set_open(False)
        self.post_message(self.Left())

    def _set_open(self, is_open: bool) -> None:
        self.display = is_open
        self.fit()

    def search(self) -> None:
        before = self.highlighted if self.has_focus_within else None
        super().search()
        active = next((view.conversation_id for view in self._views.values() if view.active), None)
        if before and before.conversation.id in self._found:
            self.highlight(before.conversation.id)
        elif not self.words.value:
            self.highlight(active)

    def options(self, found: Sequence[Stored]) -> Sequence[Option]:
        if self.words.value.strip():
            return [self._option(stored) for stored in found]
        today = date.today()
        rows: list[Option] = []
        for day, group in groupby(found, key=lambda stored: _day(stored.conversation.updated_at, today)):
            rows.append(Option(quiet(day), disabled=True))
            rows.extend(map(self._option, group))
        return rows

    def _option(self, stored: Stored) -> Option:
        view = self._views.get(stored.conversation.id)
        badge, color = BADGES.get(view.badge, (" ", "")) if view else (" ", "")
        style = "bold $primary" if view and view.active else "" if view else "$foreground-muted"
        title = " ".join(printable(stored.conversation.title).split()) or "New chat"
        tags = f"\n  {hashtags(stored.conversation.tags)}".rstrip()
        archived = "archived · " if stored.conversation.archived else ""
        return Option(
            Content.assemble((f"{badge} ", color), (archived, "$text-warning"), (title, style), quiet(tags)),
            id=stored.conversation.id,
        )

    def on_mouse_up(self, event: MouseUp) -> None:
        """A click here is not one into the conversation."""
        event.stop()


def _day(moment: float, today: date) -> str:
    """The heading that a conversation last written to at `moment` comes under."""
    day = date.fromtimestamp(moment)
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if day > today - timedelta(days=7):
        return day.strftime("%A")
    return day.strftime("%d %B" if day.year == today.year else "%B %Y").lstrip("0")

"""The messages of one conversation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import on
from textual.events import Click, Show
from textual.message import Message
from textual.timer import Timer
from textual.widget import MountError, Widget

from kvchat.conversation import ConversationController
from kvchat.fork import Fork
from kvchat.store import Role, StoredMessage
from kvchat.tui.format import count, tokens
from kvchat.tui.widgets.extents import Extents, View, guessed_rows
from kvchat.tui.widgets.steady_scroll import Place, SteadyScroll
from kvchat.tui.widgets.user_message import UserMessage, shown_part

if TYPE_CHECKING:
    from kvchat.tui.widgets.reply import AssistantMessage

REFRESH_S = 0.1
AROUND_ROWS = 2
"""Of a message, besides its text."""


class Gap(Widget):
    """Keeps the place of messages that are not mounted."""

    def show(self, rows: int) -> None:
        self.styles.height = rows
        self.display = rows > 0


class Transcript(SteadyScroll, can_focus=False):
    """Shows what the controller holds.

    While it is visible it follows the running reply and draws at most every REFRESH_S; hidden it does nothing, and it
    catches up when it is shown.

    Only the messages near the view are mounted. The others are two gaps, of the height they had or will have about.
    """

    class Clicked(Message):
        """The user clicked a message."""

        def __init__(self, message_id: int) -> None:
            super().__init__()
            self.message_id = message_id

    class QueuedClicked(Message):
        """The user clicked a message that waits."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, controller: ConversationController) -> None:
        super().__init__()
        self.controller = controller
        self._messages: list[StoredMessage] = []
        """The controller's, when they were looked at last."""
        self._mounted: dict[int, UserMessage | AssistantMessage] = {}
        """By message id, in the order of the conversation."""
        self._replies: dict[int, AssistantMessage] = {}
        """Those of them that are replies."""
        self._window = range(0)
        """The messages that are mounted."""
        self._above, self._below = Gap(), Gap()
        self._rows: dict[int, int] = {}
        """How high messages were when they were mounted last, in the present width."""
        self._width = 0
        self._queued: list[UserMessage] = []
        self.marked: int | None = None
        """The id of the message that the cursor is on."""
        self._folded = True
        self._stale = True
        self._timer: Timer | None = None
        """Of the next drawing."""
        self._drawing = asyncio.Lock()

    async def on_mount(self) -> None:
        await self.mount_all([self._above, self._below])

    def changed(self) -> None:
        """Draw what changed soon, if anybody looks."""
        self._stale = True
        if self.controller.visible and self.is_attached and not self._timer:
            self._timer = self.set_timer(REFRESH_S, self._draw_now)

    async def _draw_now(self) -> None:
        self._timer = None
        await self.catch_up()

    def to_end(self) -> None:
        """Show the end, and keep it in view."""
        self.place = None
        self._stale = True
        self.call_later(self.catch_up)
        self.scroll_end(animate=False)

    async def to_start(self) -> None:
        """Show the beginning."""
        if self.controller.messages:
            await self.show_message(self.controller.messages[0].id)

    async def show_message(self, message_id: int) -> None:
        """Bring a message to the top of the view, if the branch that is shown has it."""
        if any(message.id == message_id for message in self.controller.messages):
            self.keep_at_top(Place(message_id))
            self._stale = True
            await self.catch_up()

    async def mark(self, message_id: int | None) -> None:
        """Put the cursor on a message and bring it into view, or take the cursor away."""
        self.marked = message_id
        self._stale = True
        if message_id is None or message_id in self._mounted:
            await self.catch_up()
        else:
            await self.show_message(message_id)
        if message_id in self._mounted:
            self.call_after_refresh(self.scroll_to_widget, self._mounted[message_id], animate=False)

    def on_click(self, event: Click) -> None:
        """Tell which message was clicked, unless text was selected in it."""
        if event.widget is None or self.screen.get_selected_text():
            return
        above = set(event.widget.ancestors_with_self)
        for message_id, widget in self._mounted.items():
            if widget in above:
                self.post_message(self.Clicked(message_id))
        for index, queued in enumerate(self._queued):
            if queued in above:
                self.post_message(self.QueuedClicked(index))

    async def rest(self) -> None:
        """Take the messages away until the transcript is shown again: whatever changes the styles of the whole screen,
        such as a theme, takes its time for every widget, seen or not."""
        async with self._drawing:
            if self.is_attached and self._mounted:
                self._messages, self._stale = list(self.controller.messages), True
                await self._mount_messages(range(0))
                self._show_gaps()

    def toggle_folds(self) -> None:
        """Fold or unfold all long messages."""
        self._folded = not self._folded
        for message in self.query(UserMessage):
            message.fold(self._folded)

    @on(Show)
    async def catch_up(self) -> None:
        """Draw everything that changed since the last time."""
        if self._timer:  # two that follow one another would go on for ever
            self._timer.stop()
            self._timer = None
        async with self._drawing:
            if not self._stale or not self.is_attached:
                return
            self._stale = False
            self._messages = list(self.controller.messages)
            extents = self._extents()
            try:
                with self.app.batch_update():
                    await self._mount_messages(self._view(extents).wanted(extents, self._window))
                    self._show_gaps()
                    await self._show_queue()
                    await self._show_messages()
            except MountError:
                if self.controller.visible and self.is_attached and self.app.is_running:
                    raise
                self._stale = True
                return  # the tab was closed, or the program ended, between two of these
        self.call_after_refresh(self._look_around)

    # Which messages are mounted

    def _extents(self) -> Extents:
        reply = self.controller.reply
        for message in self._messages:
            if message.id not in self._rows:
                self._rows[message.id] = self._guess(message.role, message.text)
        if reply and reply.message_id not in self._mounted:
            self._rows[reply.message_id] = self._guess("assistant", reply.text)
        return Extents(self._rows[message.id] for message in self._messages)

    def _guess(self, role: Role, text: str) -> int:
        shown = shown_part(text, self._folded)[0] if role == "user" else text
        return AROUND_ROWS + guessed_rows(shown, self.size.width or self.app.size.width)

    def _view(self, extents: Extents) -> View:
        height = self.outer_size.height or self.app.size.height
        place = self.place
        for top, message in zip(extents.tops, self._messages, strict=False):
            if place and message.id == place.message_id:
                return View(top + self._row_within(place), height)
        return View(max(0, extents.height - height), height)

    def _row_within(self, place: Place) -> int:
        reply = self._replies.get(place.message_id)
        return place.row + (reply.extents().tops[place.section] if reply and place.section else 0)

    async def _mount_messages(self, window: range) -> None:
        self._window = window
        messages = self._messages[window.start : window.stop]
        shown = {message.id for message in messages}
        for gone in self._mounted.keys() - shown:
            self._replies.pop(gone, None)
            await self._mounted.pop(gone).remove()
        mounted: dict[int, UserMessage | AssistantMessage] = {}
        before: Widget = self._below
        for message in reversed(messages):
            widget = self._mounted.get(message.id)
            if widget is None:
                widget = self._widget(message)
                await self.mount(widget, before=before)
            mounted[message.id] = before = widget
        self._mounted = dict(reversed(mounted.items()))

    def _widget(self, message: StoredMessage) -> UserMessage | AssistantMessage:
        if message.role == "user":
            return UserMessage(message.text, folded=self._folded)
        from kvchat.tui.widgets.reply import AssistantMessage  # brings Markdown, which the first paint does without

        self._replies[message.id] = AssistantMessage()
        return self._replies[message.id]

    def _show_gaps(self) -> None:
        extents = self._extents()
        self._above.show(extents.rows(range(self._window.start)))
        self._below.show(extents.rows(range(self._window.stop, len(self._messages))))

    async def _show_queue(self) -> None:
        texts = self.controller.queued
        if texts == [message.text for message in self._queued]:
            return
        for message in self._queued:
            await message.remove()
        self._queued = [UserMessage(text, queued=True) for text in texts]
        await self.mount_all(self._queued)

    # What is drawn of the mounted ones

    async def _show_messages(self) -> None:
        reply = self.controller.reply
        for message in self._messages[self._window.start : self._window.stop]:
            widget = self._mounted[message.id]
            widget.set_class(message.id == self.marked, "-marked")
            if isinstance(widget, UserMessage):
                widget.show_note(self._note(message))
            elif reply and reply.message_id == message.id:
                await widget.show_reply(reply)
            else:
                await widget.show_message(message, self._note(message), message is self._messages[-1])
        for long_reply, wanted in self._sections_wanted():
            await long_reply.draw(wanted)

    def _note(self, message: StoredMessage) -> str:
        """What there is to say about the place of a message in the tree."""
        place, siblings = self.controller.place(message)
        fork = self.controller.fork
        parts = [f"branch {place}/{siblings}"] if siblings > 1 else []
        if fork and fork.at == message.id:
            parts.append(fork_note(fork))
        return " · ".join(parts)

    def _sections_wanted(self) -> list[tuple[AssistantMessage, range]]:
        """The long replies of which other sections are to be drawn, and which."""
        extents = self._extents()
        view = self._view(extents)
        found = []
        for index in self._window:
            reply = self._replies.get(self._messages[index].id)
            if reply and len(sections := reply.extents()) > 1:
                # The end of the message is as good as its beginning, and is what counts while the end is kept in view.
                start = extents.tops[index] if self.place else extents.tops[index + 1] - AROUND_ROWS - sections.height
                wanted = View(view.top - start, view.height).wanted(sections, reply.drawn)
                if wanted != reply.drawn:
                    found.append((reply, wanted))
        return found

    def _look_around(self) -> None:
        """Draw what the user came near to, and what turned out to be near."""
        self.tell_of_following()
        if not self.is_attached or not self._messages:
            return
        extents = self._extents()
        if self._view(extents).wanted(extents, self._window) != self._window or self._sections_wanted():
            self._stale = True
            self.call_later(self.catch_up)

    # What is kept in place

    def moved(self) -> None:
        self._look_around()

    def laid_out(self, width: int) -> None:
        if width != self._width:
            self._width = width
            self._rows.clear()
        for message_id, widget in self._mounted.items():
            if widget in self.regions:
                self._rows[message_id] = self.regions[widget].height

    def place_at(self, row: int) -> Place | None:
        for message_id, widget in self._mounted.items():
            region = self.regions.get(widget)
            if region and region.y <= row < region.bottom:
                return self._place_within(message_id, row - region.y)
        first = next(iter(self._mounted), None)
        top = self.regions[self._mounted[first]].y if first and self._mounted[first] in self.regions else 0
        if first and row < top < row + self.size.height:  # in view above what was seen before, which is to stay
            return Place(first, row - top)
        extents = self._extents()
        if not extents:
            return None
        index = extents.at(row)
        return Place(self._messages[index].id, row - extents.tops[index])

    def _place_within(self, message_id: int, row: int) -> Place:
        reply = self._replies.get(message_id)
        if not reply:
            return Place(message_id, row)
        sections = reply.extents()
        section = sections.at(row)
        return Place(message_id, row - sections.tops[section], section)

    def row_of(self, place: Place) -> int | None:
        region = self.regions.get(self._mounted.get(place.message_id, self))
        if region is None:
            return None
        if place.section:
            sections = self._replies[place.message_id].arrange(region.size).placements
            section = sections[min(place.section, len(sections) - 1)].region
            return region.y + section.y + min(place.row, section.height - 1)
        return region.y + min(place.row, region.height - 1)


def fork_note(fork: Fork) -> str:
    """Where a conversation comes from, and what it cost."""
    if fork.shared is None:
        return f"forked here: {tokens(fork.tokens)} go along"
    return f"forked here: {tokens(fork.shared)} shared, {count(fork.recomputed)} recomputed"

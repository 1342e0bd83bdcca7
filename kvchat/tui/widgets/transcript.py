"""The messages of one conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.containers import VerticalScroll
from textual.events import Click, Show
from textual.message import Message
from textual.widgets import Static

from kvchat.conversation import ConversationController
from kvchat.fork import Fork
from kvchat.store import StoredMessage
from kvchat.tui.format import count, tokens
from kvchat.tui.widgets.user_message import UserMessage

if TYPE_CHECKING:
    from kvchat.tui.widgets.reply import AssistantMessage

REFRESH_S = 0.1
PAGE = 10
"""Messages mounted at a time; older ones are mounted when they are asked for."""


class Earlier(Static):
    """Stands for the older messages that are not mounted yet."""

    def on_click(self) -> None:
        self.post_message(Transcript.EarlierWanted())


class Transcript(VerticalScroll, can_focus=False):
    """Shows what the controller holds.

    While it is visible it follows the running reply and draws at most every REFRESH_S; hidden it does nothing, and it
    catches up when it is shown. The end stays in view until the user scrolls up, and again once they are back there.
    """

    class EarlierWanted(Message):
        """The user wants the older messages."""

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

    class FollowChanged(Message):
        """The end of the transcript stays in view from now on, or does not."""

        def __init__(self, follows: bool) -> None:
            super().__init__()
            self.follows = follows

    def __init__(self, controller: ConversationController) -> None:
        super().__init__()
        self.controller = controller
        self._first = max(0, len(controller.messages) - PAGE)
        """Index of the first mounted message."""
        self._mounted: dict[int, UserMessage | AssistantMessage] = {}
        """By message id, in the order of the conversation."""
        self._replies: dict[int, AssistantMessage] = {}
        """Those of them that are replies."""
        self._queued: list[UserMessage] = []
        self.marked: int | None = None
        """The id of the message that the cursor is on."""
        self._follows = True
        self._stale = True
        self._scheduled = False

    def changed(self) -> None:
        """Draw what changed soon, if anybody looks."""
        self._stale = True
        if self.controller.visible and self.is_attached and not self._scheduled:
            self._scheduled = True
            self.set_timer(REFRESH_S, self.catch_up)

    def to_end(self) -> None:
        """Show the end, and keep it in view."""
        self.scroll_end(animate=False)

    async def show_message(self, message_id: int) -> None:
        """Bring a message to the top of the view, if the branch that is shown has it."""
        index = next((i for i, each in enumerate(self.controller.messages) if each.id == message_id), None)
        if index is None:
            return
        self._first = min(self._first, index)
        self._stale = True
        await self.catch_up()
        self.call_after_refresh(self.scroll_to_widget, self._mounted[message_id], animate=False, top=True)

    async def mark(self, message_id: int | None) -> None:
        """Put the cursor on a message and bring it into view, or take the cursor away."""
        self.marked = message_id
        self._stale = True
        index = next((i for i, each in enumerate(self.controller.messages) if each.id == message_id), None)
        if index is not None:
            self._first = min(self._first, index)
        await self.catch_up()
        if index is not None:
            widget = self._mounted[self.controller.messages[index].id]
            self.call_after_refresh(self.scroll_to_widget, widget, animate=False)

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

    def toggle_folds(self) -> None:
        """Fold or unfold all long messages."""
        for message in self.query(UserMessage):
            message.toggle()

    @on(Show)
    async def catch_up(self) -> None:
        """Draw everything that changed since the last time."""
        self._scheduled = False
        if not self._stale:
            return
        self._stale = False
        await self._mount_messages()
        await self._show_queue()
        reply = self.controller.reply
        for message in self.controller.messages[self._first :]:
            widget = self._mounted[message.id]
            widget.set_class(message.id == self.marked, "-marked")
            if isinstance(widget, UserMessage):
                widget.show_note(self._note(message))
            elif reply and reply.message_id == message.id:
                await widget.show_reply(reply)
            else:
                await widget.show_message(message, self._note(message))

    def _note(self, message: StoredMessage) -> str:
        """What there is to say about the place of a message in the tree."""
        place, siblings = self.controller.place(message)
        fork = self.controller.fork
        parts = [f"branch {place}/{siblings}"] if siblings > 1 else []
        if fork and fork.at == message.id:
            parts.append(fork_note(fork))
        return " · ".join(parts)

    @on(EarlierWanted)
    async def show_earlier(self) -> None:
        """Mount one page more, and keep what was in view where it was."""
        if not self._first:
            return
        self._first = max(0, self._first - PAGE)
        self._stale = True
        height = self.virtual_size.height
        await self.catch_up()
        self.call_after_refresh(lambda: self.scroll_relative(y=self.virtual_size.height - height, animate=False))

    async def _mount_messages(self) -> None:
        if self._first >= len(self.controller.messages):  # another, shorter branch
            self._first = max(0, len(self.controller.messages) - PAGE)
        messages = self.controller.messages[self._first :]
        shown = {message.id for message in messages}
        for gone in self._mounted.keys() - shown:
            self._replies.pop(gone, None)
            await self._mounted.pop(gone).remove()
        missing = [message for message in messages if message.id not in self._mounted]
        older = bool(self._mounted) and bool(missing) and missing[0] is messages[0]
        before = next(iter(self._mounted.values())) if older else next(iter(self._queued), None)
        added = {message.id: self._widget(message) for message in missing}
        await self.mount_all(added.values(), before=before)
        self._mounted = added | self._mounted if older else self._mounted | added
        await self._show_earlier_count()

    def _widget(self, message: StoredMessage) -> UserMessage | AssistantMessage:
        if message.role == "user":
            return UserMessage(message.text)
        from kvchat.tui.widgets.reply import AssistantMessage  # brings Markdown, which the first paint does without

        self._replies[message.id] = AssistantMessage()
        return self._replies[message.id]

    async def _show_earlier_count(self) -> None:
        [*found] = self.query(Earlier)
        if not self._first:
            for earlier in found:
                await earlier.remove()
            return
        if not found:
            found = [Earlier(markup=False)]
            await self.mount(found[0], before=0)
        found[0].update(f"▲ {count(self._first)} earlier messages")

    async def _show_queue(self) -> None:
        texts = self.controller.queued
        if texts == [message.text for message in self._queued]:
            return
        for message in self._queued:
            await message.remove()
        self._queued = [UserMessage(text, queued=True) for text in texts]
        await self.mount_all(self._queued)

    def watch_virtual_size(self) -> None:
        """Anchor what overflows, and only that: Textual would push shorter content down to the end."""
        overflows = self.virtual_size.height > self.size.height
        if overflows != self.is_anchored:
            self.anchor(overflows)
            if not overflows:
                self.scroll_home(animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        follows = not (self.is_anchored and self._anchor_released)
        if follows != self._follows:
            self._follows = follows
            self.post_message(self.FollowChanged(follows))
        if new_value == 0 and old_value > 0 and self._first:
            self.post_message(self.EarlierWanted())


def fork_note(fork: Fork) -> str:
    """Where a conversation comes from, and what it cost."""
    if fork.shared is None:
        return f"forked here: {tokens(fork.tokens)} go along"
    return f"forked here: {tokens(fork.shared)} shared, {count(fork.recomputed)} recomputed"

"""One tab's part of the screen: its transcript and its composer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Click
from textual.timer import Timer
from textual.widgets import Static

from kvchat.conversation import Change, ConversationController
from kvchat.personas import Persona
from kvchat.store import StoredMessage, StoreError
from kvchat.tui.recall import Recall
from kvchat.tui.slash import takes_pastes
from kvchat.tui.widgets.completions import Complete
from kvchat.tui.widgets.composer import SEPARATOR, Composer, joined
from kvchat.tui.widgets.message_bar import MessageBar
from kvchat.tui.widgets.transcript import Transcript
from kvchat.tui.widgets.welcome import Welcome
from kvchat.writing import is_command, message_of, written

if TYPE_CHECKING:
    from kvchat.tui.app import KvChatApp

DRAFT_DELAY_S = 0.5


class MoreBelow(Static):
    """Says that the end is out of view; a click goes there."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.display = False

    def on_mount(self) -> None:
        self.update(f"▼ more below · {cast('KvChatApp', self.app).key_of('to_the_end')}")


class ChatPane(Vertical):
    """Shows one conversation and sends what is written in it."""

    def __init__(
        self,
        controller: ConversationController,
        persona: Persona | None,
        complete: Complete,
        run_command: Callable[[str], Awaitable[bool]],
    ) -> None:
        """`run_command` obeys a /command and returns whether it could."""
        super().__init__(id=f"pane-{controller.id}")
        self.controller = controller
        self.transcript = Transcript(controller)
        self.composer = Composer(controller.draft, complete)
        self._run_command = run_command
        self._welcome = Welcome(persona)
        self._more_below = MoreBelow()
        self.bar = MessageBar()
        self._marked_index = 0
        self._edited: StoredMessage | None = None
        """The message that is being changed; the draft waits in the controller."""
        self._sent = ("", "")
        """The last message, and the draft that it was made of."""
        self._recall = Recall()
        self._draft_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield self._welcome
        yield self.transcript
        yield self._more_below
        yield self.bar
        yield self.composer

    def on_mount(self) -> None:
        self._show_welcome()

    @property
    def preceding(self) -> int:
        """How many messages go before what is written."""
        ids = [message.id for message in self.controller.messages]
        return ids.index(self._edited.id) if self._edited and self._edited.id in ids else len(ids)

    def focus_composer(self) -> None:
        self.screen.set_focus(self.composer.editor)

    async def mark(self, message_id: int) -> None:
        """Put the cursor on a message, and the keys with it."""
        if not self.bar.is_attached:
            return  # the key was pressed while the tab was being made
        await self.transcript.mark(message_id)
        self._show_bar()
        if self.bar.display:
            self.screen.set_focus(self.bar)

    def leave(self) -> bool:
        """Give up an edit, else take the cursor away; whether there was one."""
        if self._edited:
            self.call_later(self._end_edit)
            self.focus_composer()
        elif self.transcript.marked is not None:
            self.leave_message()
        else:
            return False
        return True

    def leave_message(self) -> None:
        """Take the cursor away from the messages."""
        self.call_later(self._unmark)
        self.focus_composer()

    async def edit(self, message: StoredMessage) -> None:
        """Put a message into the composer, to be sent again in its place."""
        await self._unmark()
        self._keep_draft()
        if self._edited is None or self._edited.id != message.id:
            self.controller.draft, self.controller.edited = joined(self.controller.edited, self.controller.draft), ""
            self._edited = message
            self.composer.tell("Editing · Enter sends it as a branch · Esc leaves it as it was")
            await self.composer.set_draft(written(message.text))
        self.focus_composer()

    async def _end_edit(self) -> None:
        if self._edited:
            self._edited, self.controller.edited = None, ""
            self._save_soon()
            self.composer.tell("")
            await self.composer.set_draft(self.controller.draft)

    async def show_draft(self, draft: str) -> None:
        """Put a draft into the composer, or wait with it for the end of an edit."""
        self.controller.draft = draft
        self._save_soon()
        if self._edited is None:
            await self.composer.set_draft(draft)

    async def _unmark(self) -> None:
        await self.transcript.mark(None)
        self._show_bar()

    def _keep_mark(self) -> None:
        """Where the marked message is not any more, the one that has its place now is marked, or the last."""
        messages, marked = self.controller.messages, self.transcript.marked
        if messages and marked is not None and all(each.id != marked for each in messages):
            self.transcript.marked = messages[min(self._marked_index, len(messages) - 1)].id
            self.call_later(self.transcript.mark, self.transcript.marked)
        self._show_bar()

    def _show_bar(self) -> None:
        for index, message in enumerate(self.controller.messages):
            if message.id == self.transcript.marked:
                self._marked_index = index
                self.bar.show(self.controller.place(message))
                break
        else:
            if self.bar.has_focus:
                self.focus_composer()
            self.bar.hide()

    def changed(self, change: Change) -> None:
        """The controller has something new."""
        match change:
            case "messages" | "reply" | "ended" | "queue":
                self._show_welcome()
                self.transcript.changed()
                if change != "reply":
                    self._keep_mark()
            case "draft":
                message, draft = self._sent
                if f"{self.controller.draft}\n\n".startswith(f"{message}\n\n"):  # refused: its chips come back, too
                    rest = self.controller.draft.removeprefix(message).removeprefix("\n\n")
                    self.controller.draft = joined(draft, rest)
                self.call_later(self.show_draft, self.controller.draft)

    def _show_welcome(self) -> None:
        empty = not self.controller.messages
        self._welcome.display = empty
        self.transcript.display = not empty

    @on(Composer.Submitted)
    async def _send(self, event: Composer.Submitted) -> None:
        event.stop()
        draft = self.composer.draft
        if is_command(event.text):
            typed, *pasted = draft.split(SEPARATOR)
            whole = takes_pastes(typed)
            # Before the command, which may close the tab; what it does not take is for the next message.
            await self.composer.set_draft(SEPARATOR.join(["", *([] if whole else pasted)]))
            self._keep_draft()
            if not await self._run_command(event.text if whole else typed):
                await self.composer.set_draft(draft)
            return
        self._sent = message_of(event.text), draft
        try:
            if self._edited:
                self.controller.edit(self._edited.id, message_of(event.text))
            else:
                self.controller.draft = ""  # before it is sent: what waits is saved with the draft
                self.controller.send(message_of(event.text))
        except StoreError as error:
            self._keep_draft()
            self.notify(f"not sent: {error}", severity="error", markup=False)
            return
        await self._unmark()
        if self._edited:
            await self._end_edit()
        else:
            await self.composer.clear()
        self.transcript.to_end()

    @on(Composer.Changed)
    def _keep_draft(self) -> None:
        before = self.controller.unsent
        if self._edited is None:
            self.controller.draft = self.composer.draft
        else:
            text = self.composer.text
            self.controller.edited = text if text != written(self._edited.text) else ""
        if self.controller.unsent != before:
            self._save_soon()

    def _save_soon(self) -> None:
        if self._draft_timer is None:
            self._draft_timer = self.set_timer(DRAFT_DELAY_S, self._save_draft)

    def _save_draft(self) -> None:
        self._draft_timer = None
        self.controller.save_draft()

    @on(Composer.RecallWanted)
    async def _recall_wanted(self, event: Composer.RecallWanted) -> None:
        event.stop()
        if self._edited:
            return
        shown = self.composer.draft
        if event.step < 0 and not shown and (queued := self.controller.unqueue()):
            await self.composer.set_draft(written(queued))
            return
        text = self._recall.step([written(each) for each in self.controller.sent], shown, event.step)
        if text is not None:
            await self.composer.set_draft(text)

    @on(Transcript.QueuedClicked)
    async def _queued_clicked(self, event: Transcript.QueuedClicked) -> None:
        event.stop()
        await self.take_back(event.index)

    async def take_back(self, index: int) -> None:
        """Put a message that waits into the composer, before the draft."""
        if self._edited:
            self.notify("Send the edit first, or leave it with Esc", timeout=3)
        elif text := self.controller.unqueue(index):
            await self.composer.set_draft(joined(written(text), self.composer.draft))

    @on(Transcript.FollowChanged)
    def _show_more_below(self, event: Transcript.FollowChanged) -> None:
        event.stop()
        self._more_below.display = not event.follows

    @on(Click, "MoreBelow")
    def _to_end(self) -> None:
        self.transcript.to_end()

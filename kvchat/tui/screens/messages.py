"""What can be done with a message: the one the cursor is on, else the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import on, work

from kvchat.store import StoredMessage
from kvchat.tui.ask import ask
from kvchat.tui.code_blocks import code_blocks, may_have_code
from kvchat.tui.screens.tabs import TabScreen
from kvchat.tui.widgets.chat_pane import ChatPane
from kvchat.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from kvchat.tui.app import KvChatApp


class MessageScreen(TabScreen):
    """Moves the cursor over the messages of the active tab and obeys its keys."""

    @property
    def active_pane(self) -> ChatPane:
        raise NotImplementedError

    @property
    def marked(self) -> int | None:
        """The id of the message that the cursor is on."""
        raise NotImplementedError

    @property
    def target(self) -> StoredMessage | None:
        """The message that is meant."""
        messages, marked = self.workspace.active.messages, self.marked
        return next((each for each in messages if each.id == marked), messages[-1] if messages else None)

    @property
    def editable(self) -> StoredMessage | None:
        """The message of the user that is meant, or that the reply that is meant answers."""
        messages, target = self.workspace.active.messages, self.target
        upto = messages[: messages.index(target) + 1] if target else []
        return next((each for each in reversed(upto) if each.role == "user"), None)

    async def action_message_cursor(self, step: int) -> None:
        """Move the cursor up or down; from the composer it goes to the last message, below that back."""
        messages, marked = self.workspace.active.messages, self.marked
        ids = [message.id for message in messages]
        index = ids.index(marked) + step if marked in ids else len(ids) + min(step, 0)
        if index < len(ids):
            await self.active_pane.mark(ids[max(0, index)])
        else:
            self.action_leave()

    @on(Transcript.Clicked)
    async def _clicked(self, event: Transcript.Clicked) -> None:
        await self.active_pane.mark(event.message_id)

    async def take_back(self, index: int) -> None:
        """Put a message that waits into the composer."""
        await self.active_pane.take_back(index)

    def action_leave(self) -> bool:
        """Give up an edit, else take the cursor away; whether there was one."""
        return self.active_pane.leave()

    def action_copy_message(self) -> None:
        if target := self.target:
            reply = self.workspace.active.reply
            running = reply is not None and reply.message_id == target.id
            self._copy(reply.text if reply and running else target.text, "Message copied")

    @work
    async def action_copy_code(self) -> None:
        """Copy a code block of the message; of several the one that the user chooses."""
        from kvchat.tui.screens.code import CodeScreen

        target = self.target
        blocks = code_blocks(target.text) if target else []
        chosen = await ask(self, CodeScreen(blocks)) if len(blocks) > 1 else next(iter(blocks), None)
        if chosen:
            self._copy(chosen.code, "Code copied")
        elif not blocks:
            self.notify("No code here", timeout=2)

    def _copy(self, text: str, done: str) -> None:
        self.app.copy_to_clipboard(text)
        self.notify(done, timeout=2)

    async def action_edit_message(self) -> None:
        if message := self.editable:
            await self.active_pane.edit(message)

    async def action_regenerate(self) -> None:
        target = self.target
        with self.complaining():
            self.workspace.active.regenerate(target.id if target else None)
        self.active_pane.leave_message()

    async def action_continue_reply(self) -> None:
        with self.complaining():
            self.workspace.active.continue_reply()
        self.active_pane.leave_message()

    def action_step_branch(self, step: int) -> None:
        """Show a message beside the marked one; without a cursor, where the branches part last."""
        with self.complaining():
            self.workspace.active.step_branch(step, self.marked)

    async def action_fork(self) -> None:
        """Go on from the message in a new tab."""
        if target := self.target:
            with self.complaining():
                await self.show_tab(self.workspace.fork(self.workspace.active, target))

    def action_delete_message(self) -> None:
        target = self.target
        if target is None:
            return
        with self.complaining():
            self.workspace.active.delete(target.id)
            key = cast("KvChatApp", self.app).key_of("undelete")
            self.notify(f"Deleted · [@click=screen.undelete]Undo[/] with {key}, until you leave kvchat", timeout=8)

    def action_undelete(self) -> None:
        with self.complaining():
            self.workspace.active.undelete()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys of what is not possible now."""
        tab = self.workspace.active
        match action:
            case "regenerate":
                return tab.can_regenerate
            case "continue_reply":
                return tab.can_continue and self.target is tab.messages[-1]
            case "undelete":
                return tab.can_undelete
            case "delete_message":
                return tab.reply is None and self.target is not None
            case "edit_message":
                return self.editable is not None
            case "message_cursor" | "copy_message":
                return self.target is not None
            case "copy_code":
                return self.target is not None and may_have_code(self.target.text)
            case "fork":
                target = self.target
                return target is not None and not (tab.reply and tab.reply.message_id == target.id)
            case "step_branch":
                parts = self.target if self.marked is not None else tab.last_parting
                return tab.reply is None and parts is not None and tab.place(parts)[1] > 1
        return True

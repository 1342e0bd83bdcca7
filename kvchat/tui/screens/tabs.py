"""Opening, closing, finding and moving tabs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.screen import Screen

from kvchat.conversation import ConversationController
from kvchat.personas import Persona, Personas
from kvchat.store import StoreError
from kvchat.tui.ask import ask
from kvchat.tui.format import printable
from kvchat.tui.widgets.tab_bar import TabBar
from kvchat.tui.workspace import Stored, Workspace

if TYPE_CHECKING:
    from kvchat.tui.app import KvChatApp


class TabScreen(Screen[None]):
    """Does with the tabs of a workspace what the user wants; what a tab looks like is its subclass's."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace

    @property
    def personas(self) -> Personas:
        return self.workspace.personas

    async def show_active(self) -> None:
        """Bring the workspace's active tab to the front."""
        raise NotImplementedError

    async def forget(self, tab: ConversationController) -> None:
        """A tab was closed: remove what it looked like."""
        raise NotImplementedError

    async def show_message(self, message_id: int) -> None:
        """Scroll the active tab to a message."""
        raise NotImplementedError

    def tabs_changed(self) -> None:
        """Their order is another."""
        raise NotImplementedError

    async def show_tab(self, tab: ConversationController) -> None:
        """Bring a tab to the front."""
        with self.complaining():
            self.workspace.activate(tab)
        await self.show_active()

    async def open_tab(self, persona: Persona) -> None:
        """Start a conversation."""
        with self.complaining():
            await self.show_tab(self.workspace.open_new(persona))

    async def open_stored(self, conversation_id: str) -> None:
        """Open a conversation of the history."""
        with self.complaining():
            await self.show_tab(self.workspace.open_stored(conversation_id))

    async def open_found(self, found: Stored) -> None:
        """Open a conversation of the history, at the message that was found."""
        await self.open_stored(found.conversation.id)
        if found.message_id is not None:
            await self.show_message(found.message_id)

    async def action_new_tab(self) -> None:
        await self.open_tab(self.workspace.default_persona)

    @work
    async def action_pick_persona(self) -> None:
        from kvchat.tui.screens.personas import PersonaScreen

        workspace = self.workspace
        screen = PersonaScreen(
            self.personas, workspace.default_persona.name, workspace.sampling, workspace.use_personas
        )
        if choice := await ask(self, screen):
            await self.open_tab(choice)

    def action_close_tab(self) -> None:
        self.close_tab(self.workspace.active)

    @work
    async def close_tab(self, tab: ConversationController) -> None:
        """Close a tab, and ask before a reply is cut."""
        if tab.reply and not await self.confirm("A reply is still running here. Stop it and close the tab?", "Close"):
            return
        if self.workspace.find(tab.id) is None:
            return  # closed while it was asked about
        with self.complaining():
            self.workspace.close(tab)
        await self.show_active()
        await self.forget(tab)

    async def action_reopen_tab(self) -> None:
        with self.complaining():
            if tab := self.workspace.reopen():
                await self.show_tab(tab)
            else:
                key = cast("KvChatApp", self.app).key_of("open_conversation")
                self.notify(f"no closed tab; {key} opens any conversation")

    def action_open_conversation(self) -> None:
        self.find("")

    @work
    async def find(self, words: str) -> None:
        """Let the user open a conversation that contains the words."""
        from kvchat.tui.screens.history import HistoryScreen

        if chosen := await ask(self, HistoryScreen(self.workspace, words)):
            await self.open_found(chosen)

    @work
    async def action_rename_tab(self) -> None:
        from kvchat.tui.screens.rename import RenameScreen

        tab = self.workspace.active
        title = await ask(self, RenameScreen(tab.title))
        if title is not None:
            with self.complaining():
                tab.rename(title)

    @work
    async def pick_sampling(self) -> None:
        """Let the user change how the replies of the active tab are sampled."""
        from kvchat.tui.screens.sampling import SamplingScreen

        tab = self.workspace.active
        screen = SamplingScreen(tab.conversation.sampling, self.workspace.sampling_defaults(tab))
        if sampling := await ask(self, screen):
            with self.complaining():
                tab.set_sampling(sampling)

    @work
    async def export(self) -> None:
        """Ask for a file, and write the active conversation to it."""
        from kvchat.exchange import ExchangeError
        from kvchat.tui.screens.export import ExportScreen

        tab = self.workspace.active
        if path := await ask(self, ExportScreen(tab.title)):
            try:
                self.export_to(Path(os.path.expanduser(path)), tab)
            except (ExchangeError, StoreError) as error:
                self.complain(str(error))

    def export_to(self, file: Path, tab: ConversationController) -> None:
        """Write a conversation to a file, and ask before one is replaced. Raises ExchangeError, StoreError."""
        from kvchat.exchange import format_of, render

        text = render([self.workspace.copy_of(tab)], format_of(file))
        if os.path.exists(file):
            self._replace(file, text)
        else:
            self._write(file, text)

    @work
    async def _replace(self, file: Path, text: str) -> None:
        from kvchat.exchange import ExchangeError

        if await self.confirm(f"Replace {printable(str(file))}?", "Replace", loses=True):
            try:
                self._write(file, text)
            except ExchangeError as error:
                self.complain(str(error))

    def _write(self, file: Path, text: str) -> None:
        from kvchat.exchange import save

        save(file, text)
        self.notify(f"Exported to {printable(str(file))}", markup=False)

    async def action_step_tab(self, step: int) -> None:
        await self.show_tab(self.workspace.neighbour(step))

    async def action_show_tab(self, number: int) -> None:
        if number <= len(self.workspace.tabs):
            await self.show_tab(self.workspace.tabs[number - 1])

    def action_move_tab(self, step: int) -> None:
        with self.complaining():
            self.workspace.move(self.workspace.active, step)
        self.tabs_changed()

    @on(TabBar.TabWanted)
    async def _tab_wanted(self, event: TabBar.TabWanted) -> None:
        if tab := self.workspace.find(event.conversation_id):
            await self.show_tab(tab)

    @on(TabBar.CloseWanted)
    def _close_wanted(self, event: TabBar.CloseWanted) -> None:
        if tab := self.workspace.find(event.conversation_id):
            self.close_tab(tab)

    @on(TabBar.MoveWanted)
    def _move_wanted(self, event: TabBar.MoveWanted) -> None:
        if tab := self.workspace.find(event.conversation_id):
            with self.complaining():
                self.workspace.move(tab, event.step)
            self.tabs_changed()

    @on(TabBar.RenameWanted)
    def _rename_wanted(self) -> None:
        self.action_rename_tab()

    @on(TabBar.NewWanted)
    async def _new_wanted(self) -> None:
        await self.action_new_tab()

    # Common

    async def confirm(self, question: str, yes: str, loses: bool = False) -> bool:
        """Ask a question and wait for the answer; see ConfirmScreen."""
        from kvchat.tui.screens.confirm import ConfirmScreen

        answer = await ask(self, ConfirmScreen(question, yes, loses=loses))
        return answer is True

    @contextmanager
    def complaining(self) -> Iterator[None]:
        """Show a StoreError instead of raising it."""
        try:
            yield
        except StoreError as error:
            self.complain(str(error))

    def complain(self, problem: str, timeout_s: float = 10) -> None:
        """Show what went wrong."""
        self.notify(printable(problem), severity="error", timeout=timeout_s, markup=False)

"""What is beside a conversation: the list of all of them, the map of KV blocks, and why a reply was slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual import on

from kvchat.tui.screens.tabs import TabScreen
from kvchat.tui.widgets.block_map import BlockMap
from kvchat.tui.widgets.foot import Foot
from kvchat.tui.widgets.panel import PanelMode
from kvchat.tui.widgets.sidebar import Sidebar
from kvchat.tui.widgets.tab_bar import TabBar

if TYPE_CHECKING:
    from kvchat.tui.app import KvChatApp


class SideScreen(TabScreen):
    """Opens and closes them, and takes the keys there and back."""

    sidebar: Sidebar

    def show_panel(self, mode: PanelMode) -> None:
        """Show the panel in this form from now on."""
        raise NotImplementedError

    def draw_panel(self) -> None:
        """Draw the panel when the screen is laid out."""
        raise NotImplementedError

    @property
    def marked(self) -> int | None:
        """The id of the message that the cursor is on."""
        raise NotImplementedError

    def focus_composer(self) -> None:
        raise NotImplementedError

    @property
    def is_elsewhere(self) -> bool:
        """The keys are neither the composer's nor nobody's."""
        return self.sidebar.has_focus_within or isinstance(self.focused, BlockMap)

    # The list of conversations

    async def action_toggle_sidebar(self) -> None:
        await self._change_sidebar(self.sidebar.toggle)

    @on(TabBar.SidebarWanted)
    async def _switch_sidebar(self) -> None:
        await self._change_sidebar(self.sidebar.close if self.sidebar.display else self.sidebar.toggle)

    async def _change_sidebar(self, change: Callable[[], None]) -> None:
        if not self.sidebar.is_attached:  # the first paint does without it while it is closed
            await self.query_one("#body").mount(self.sidebar, before=0)
        change()
        self.draw_panel()  # in another form, where there is no space for both
        if not self.sidebar.covers:
            cast("KvChatApp", self.app).keep("ui", "sidebar", self.sidebar.display)

    @on(Sidebar.Chosen)
    async def _open_from_sidebar(self, event: Sidebar.Chosen) -> None:
        await self.open_found(event.stored)
        self.sidebar.leave()

    @on(Sidebar.Left)
    @on(BlockMap.Left)
    def _back_to_composer(self) -> None:
        self.focus_composer()

    def on_screen_resume(self) -> None:
        self.sidebar.renew()  # a dialog may have changed the history

    def on_resize(self) -> None:
        self.sidebar.fit()
        self.draw_panel()

    # The map of KV blocks

    def action_visit_blocks(self) -> None:
        """Give the keys to the map."""
        self.show_panel("full")
        self.call_after_refresh(self._visit_blocks)

    def _visit_blocks(self) -> None:
        block_map = self.query_one(BlockMap)
        if block_map.is_on_screen:
            block_map.focus()
        else:
            self.complain("there is no space for the KV blocks: make the terminal larger, or close the sidebar")

    @on(BlockMap.OwnerWanted)
    async def _show_owner(self, event: BlockMap.OwnerWanted) -> None:
        if tab := self.workspace.find(event.conversation_id):
            await self.show_tab(tab)

    # Why a reply was slow

    @on(Foot.CostWanted)
    def _show_cost_of(self, event: Foot.CostWanted) -> None:
        self.action_show_cost(event.message_id)

    def action_show_cost(self, message_id: int | None = None) -> None:
        """Show where the time of a reply went; by default of the marked one, else of the last one that says."""
        from kvchat.tui.screens.cost import CostScreen

        tab, persona = self.workspace.active, self.workspace.persona_of(self.workspace.active)
        prompt = persona.system_prompt if persona else None
        self.app.push_screen(CostScreen(tab.conversation, tab.measured_messages, message_id or self.marked, prompt))

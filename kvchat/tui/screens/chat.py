"""The chat: tabs above, the conversation with its composer, the live panel, the footer."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.app import ComposeResult, SuspendNotSupported
from textual.containers import Horizontal
from textual.events import MouseUp
from textual.timer import Timer
from textual.widgets import ContentSwitcher, Footer

from engine.api import EngineState, EngineStats
from kvchat.config import UiConfig
from kvchat.conversation import Change, ConversationController
from kvchat.store import StoreError
from kvchat.tui import keys, slash
from kvchat.tui.attention import Attention, tell_of_ended
from kvchat.tui.completion import Candidate, argument_candidates, command_candidates, path_candidates
from kvchat.tui.compositor import FrontCompositor
from kvchat.tui.context_guard import ContextGuard
from kvchat.tui.external_editor import EditorError, edit
from kvchat.tui.format import printable
from kvchat.tui.monitor import Monitor
from kvchat.tui.screens.messages import MessageScreen
from kvchat.tui.screens.sides import SideScreen
from kvchat.tui.widgets.chat_pane import ChatPane
from kvchat.tui.widgets.composer import Composer
from kvchat.tui.widgets.panel import Panel, PanelMode, PanelStrip
from kvchat.tui.widgets.sidebar import Sidebar
from kvchat.tui.widgets.status import Banner, Status
from kvchat.tui.widgets.tab_bar import Badge, TabBar, TabView
from kvchat.tui.workspace import Workspace

if TYPE_CHECKING:
    from textual.widgets import Markdown

    from kvchat.tui.app import KvChatApp

PANES_AWAKE = 2
"""Tabs that keep their messages mounted, the hidden one too: going to and fro between two takes no time."""
PANEL_REFRESH_S = 1.0
"""Between two drawings of the panel while nothing but numbers changes: each takes some ms of a core that the engine
computes on too."""
PANEL_DELAY_S = 0.02
"""Until the first one, so that several changes are one drawing."""
_PANEL_MODES: tuple[PanelMode, ...] = ("full", "compact", "off", "debug")


class ChatScreen(MessageScreen, SideScreen):
    """Shows the workspace and changes it as the user wants."""

    BINDINGS = [*keys.TABS, *keys.NUMBERED_TABS, *keys.MESSAGES, *keys.REPLY, *keys.VIEW]
    AUTO_FOCUS = "Editor"

    def __init__(self, workspace: Workspace, ui: UiConfig) -> None:
        super().__init__(workspace)
        self._compositor = FrontCompositor()
        self._panel_mode: PanelMode = ui.panel
        self._attention: Attention = ui.notify
        self._monitor = Monitor()
        self._panel_timer: Timer | None = None
        self._panel_drawn_at = -PANEL_REFRESH_S
        self._situation: tuple[object, ...] = ()
        self._tab_bar = TabBar()
        self._banner = Banner()
        self.sidebar = Sidebar(workspace, ui.sidebar)
        self._switcher = ContentSwitcher()
        self._panes: dict[str, ChatPane] = {}
        """By conversation id, the one that was shown last at the end; a pane is made when its tab is shown first."""
        self._guard = ContextGuard(self, self._monitor)
        self._panels = (Panel(classes=f"-{ui.panel}"), PanelStrip(classes=f"-{ui.panel}"))
        self._status = Status()

    def compose(self) -> ComposeResult:
        panel, strip = self._panels
        yield self._tab_bar
        yield self._banner
        with Horizontal(id="body"):
            if self.sidebar.display:
                yield self.sidebar
            yield self._switcher
            yield panel
        yield strip
        with Horizontal(id="bottom"):
            yield Footer(compact=True, show_command_palette=False)
            yield self._status

    async def on_mount(self) -> None:
        await self.show_active()

    def on_unmount(self) -> None:
        self._monitor.gauge.watch(False)

    # What the application tells

    def conversation_changed(self, tab: ConversationController, change: Change) -> None:
        """A conversation has something new to show."""
        self._monitor.gauge.updated()
        if pane := self._panes.get(tab.id):
            pane.changed(change)
        if change == "trouble" and tab.trouble:
            self.complain(tab.trouble)
        if change == "refused":
            self.complain(f"not sent: {self._guard.reason(tab)}")
        if change == "ended":
            tell_of_ended(self, tab, self._attention)
            if metrics := tab.messages[-1].metrics:
                self._monitor.replied(metrics)
                self._guard.replied(tab, metrics)
        if change in ("ended", "refused"):
            self._ask_about_context()
        self._refresh_around()

    def engine_changed(self, engine: EngineState, advice: str) -> None:
        """The engine has another state; `advice` is for the banner, empty when all is well."""
        self._monitor.engine_changed(engine)
        self._guard.engine_changed(engine)
        self._banner.show(advice)
        self._status.show(engine)
        self._refresh_around()

    def stats_changed(self, stats: EngineStats) -> None:
        """There is a new snapshot of the engine."""
        if self._monitor.stats_changed(stats):
            self.draw_panel()
        else:
            self._refresh_panel()

    # Drawing

    async def show_active(self) -> None:
        tab = self.workspace.active
        pane = self._panes.get(tab.id)
        if pane is None:
            pane = self._panes[tab.id] = ChatPane(tab, self.workspace.persona_of(tab), self._complete, self.run_command)
            await self._switcher.mount(pane)
        self._panes[tab.id] = self._panes.pop(tab.id)
        self._switcher.current = pane.id
        pane.focus_composer()
        pane.changed("messages")
        self._refresh_around()
        self._ask_about_context()
        for hidden in [*self._panes.values()][:-PANES_AWAKE]:
            await hidden.transcript.rest()

    async def forget(self, tab: ConversationController) -> None:
        if pane := self._panes.pop(tab.id, None):
            await pane.remove()

    async def show_message(self, message_id: int) -> None:
        await self.active_pane.transcript.show_message(message_id)

    def tabs_changed(self) -> None:
        self._refresh_around()

    def _refresh_around(self) -> None:
        """Everything but the conversation itself."""
        views = [self._tab_view(tab) for tab in self.workspace.tabs]
        self._tab_bar.show(views)
        self.sidebar.show(views)
        self._refresh_panel()
        self._watch()
        tab = self.workspace.active
        last = [(message.id, message.status) for message in tab.messages[-1:]]
        possible = (tab.can_retry, tab.can_continue, tab.can_undelete)
        situation = (tab.id, tab.reply and tab.reply.phase, possible, last)
        if situation != self._situation:
            self._situation = situation
            self.refresh_bindings()
            self.draw_panel()

    def _tab_view(self, tab: ConversationController) -> TabView:
        badge: Badge = ""
        if tab.reply:
            badge = "queued" if tab.reply.phase == "queued" else "busy"
        elif tab.unread:
            badge = "failed" if tab.refusal or tab.messages[-1].status == "failed" else "unread"
        return TabView(tab.id, tab.title or "New chat", badge, tab is self.workspace.active)

    def _refresh_panel(self) -> None:
        """Draw the panel before long."""
        if self._panel_timer is None:
            due = self._panel_drawn_at + PANEL_REFRESH_S - perf_counter()
            self._panel_timer = self.set_timer(max(PANEL_DELAY_S, due), self._panel_due)

    def _panel_due(self) -> None:
        self._panel_timer, self._panel_drawn_at = None, perf_counter()
        self._draw_panel()

    def draw_panel(self) -> None:
        self.call_after_refresh(self._draw_panel)

    def _draw_panel(self) -> None:
        self._forecast()
        tab = self.workspace.active
        debug = self._panel_mode == "debug"
        vitals = self._monitor.vitals(tab, self.workspace.persona_of(tab), self.workspace.tabs, debug)
        for panel in self._panels:
            if panel.display:
                panel.show(vitals)
        if debug:
            self._refresh_panel()  # the interface changes while the engine has nothing new

    @on(Composer.Changed)
    def _forecast(self) -> None:
        if pane := self._panes.get(self.workspace.active.id):
            self._guard.forecast(pane)

    @work
    async def _ask_about_context(self) -> None:
        with self.complaining():
            await self._guard.ask_when_full()

    def _watch(self) -> None:
        """Watch the interface while that is shown, or has a reason to lag."""
        self._monitor.gauge.watch(self._panel_mode == "debug" or self.workspace.running() > 0)

    def _compositor_refresh(self) -> None:
        began = perf_counter()
        super()._compositor_refresh()
        self._monitor.gauge.frame_drawn(perf_counter() - began)

    # The conversation

    async def run_command(self, text: str) -> bool:
        """Do what a line that begins with a slash says; False, after a complaint, when that is not possible."""
        try:
            await slash.run(self, text)
        except (slash.CommandError, StoreError) as problem:
            self.complain(str(problem), timeout_s=5)  # the line is in the composer again: it is soon put right
            return False
        return True

    async def write(self, text: str) -> None:
        """Put a text into the composer, for the user to go on with."""
        await self.active_pane.composer.set_draft(text)

    def _complete(self, before: str) -> Sequence[Candidate]:
        name = before[1:].partition(" ")[0]
        command = next((each for each in slash.COMMANDS if each.name == name), None)
        return (
            command_candidates(before, slash.COMMANDS)
            or (argument_candidates(before, command.choices(self)) if command else [])
            or path_candidates(before)
        )

    async def action_edit_outside(self) -> None:
        editor = self.active_pane.composer.editor
        text, problem = editor.text, ""
        try:
            with self.app.suspend():
                try:
                    text = edit(text)
                except EditorError as error:  # out of suspend() it would leave the terminal to nobody
                    problem = str(error)
        except SuspendNotSupported:
            problem = "this terminal cannot be left to another program"
        if problem:
            self.complain(problem)
        elif text != editor.text:
            editor.replace(text, editor.document.start, editor.document.end, maintain_selection_offset=False)
            editor.move_cursor(editor.document.end)

    def action_stop(self) -> None:
        if not (self.active_pane.composer.close_completions() or self.action_leave()):
            self.workspace.active.stop()

    def action_retry(self) -> None:
        with self.complaining():
            self.workspace.active.retry()

    def action_copy_reply(self) -> None:
        if text := self.workspace.active.last_reply:
            self.app.copy_to_clipboard(text)
            self.notify("Reply copied", timeout=2)

    @work
    async def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        href = event.href
        if not href.startswith(("http://", "https://", "mailto:")):
            self.notify(f"not a web address: {printable(href)}", severity="warning", markup=False)
        elif await self.confirm(f"Open this link in the browser?\n\n{printable(href)}", "Open"):
            self.app.open_url(href)

    # The view

    def action_scroll(self, pages: int) -> None:
        self.active_pane.transcript.scroll_pages(pages)

    async def action_to_start(self) -> None:
        await self.active_pane.transcript.to_start()

    def action_to_end(self) -> None:
        self.active_pane.transcript.to_end()

    def action_toggle_folds(self) -> None:
        self.active_pane.transcript.toggle_folds()

    def action_expand_pastes(self) -> None:
        self.active_pane.composer.expand_chips()

    def action_cycle_panel(self) -> None:
        mode = _PANEL_MODES[(_PANEL_MODES.index(self._panel_mode) + 1) % len(_PANEL_MODES)]
        self.show_panel(mode)
        if mode != "debug":
            cast("KvChatApp", self.app).keep("ui", "panel", mode)

    def show_panel(self, mode: PanelMode) -> None:
        for panel in self._panels:  # not on the screen: the styles of all that is in it would be computed anew
            panel.remove_class(f"-{self._panel_mode}")
            panel.add_class(f"-{mode}")
        self._panel_mode = mode
        self._watch()
        self.draw_panel()

    def action_help(self) -> None:
        from kvchat.tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(keys.sections(cast("KvChatApp", self.app).keymap), slash.COMMANDS))

    @property
    def active_pane(self) -> ChatPane:
        return self.pane_of(self.workspace.active)

    @property
    def marked(self) -> int | None:
        pane = self._panes.get(self.workspace.active.id)
        return pane.transcript.marked if pane else None

    def focus_composer(self) -> None:
        self.active_pane.focus_composer()

    def pane_of(self, tab: ConversationController) -> ChatPane:
        """Of a tab that was shown."""
        return self._panes[tab.id]

    def on_mouse_up(self, event: MouseUp) -> None:
        """Wherever the user clicked, they go on writing; only below a message that has the keys it keeps them."""
        self._tab_bar.drop()
        if event.widget is not self.active_pane.bar:
            self.focus_composer()

    # Common

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys of what is not possible now."""
        match action:
            case "stop":
                return self.workspace.active.reply is not None and not self.is_elsewhere
            case "scroll":
                return not self.is_elsewhere
            case "retry":
                return self.workspace.active.can_retry
            case "show_cost":
                return any(message.metrics for message in self.workspace.active.measured_messages)
        return super().check_action(action, parameters)

"""The terminal application."""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from textual import work
from textual.app import App
from textual.binding import Binding
from textual.events import Event as TextualEvent
from textual.events import Paste
from textual.message import Message
from textual.screen import Screen

from engine.api import EngineState, EngineStats, Event
from engine.client import EngineClient
from kvchat import paths
from kvchat.config import Config, ConfigError, UiConfig
from kvchat.conversation import Change, ConversationController
from kvchat.personas import Personas
from kvchat.store import Store, StoreError
from kvchat.tui import clipboard, keys
from kvchat.tui.ask import ask
from kvchat.tui.format import printable, typed
from kvchat.tui.keymap import spelled
from kvchat.tui.screens.chat import ChatScreen
from kvchat.tui.theme_watch import POLL_S, ThemeWatch
from kvchat.tui.themes import block_colors
from kvchat.tui.workspace import Workspace

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.notifications import SeverityLevel

ENDING_S = 5
"""How long a program that was told to end may take after everything is saved."""
WARNING_S = 10
"""How long it is said that leaving loses something, and leaving all the same is possible."""


class EngineEvents(Message):
    """What the engine's client reported, on its way from its thread to the application's."""

    def __init__(self, events: Sequence[Event]) -> None:
        super().__init__()
        self.events = events


def _commands() -> type[Provider]:
    from kvchat.tui.commands import ChatCommands

    return ChatCommands


class KvChatApp(App[None]):
    """The chat over a store, an engine client and the personas. Who makes them also closes them."""

    TITLE = "kvchat"
    CSS_PATH = [f"styles/{part}.tcss" for part in ("base", "chat", "panel", "dialogs", "forms", "cost", "sidebar")]
    BINDINGS = [*keys.PROGRAM]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-low"), (24, "-tall")]
    COMMANDS = {_commands}
    NOTIFICATION_TIMEOUT = 4

    def __init__(
        self,
        config: Config,
        store: Store,
        client: EngineClient,
        personas: Personas,
        settings_file: Path | None = None,
    ) -> None:
        """Choices that are to be kept go to `settings_file`, by default the user's config.toml. Raises ConfigError for
        an unknown theme or persona, StoreError when the history cannot be read."""
        super().__init__()
        self._themes = ThemeWatch(self)
        theme = UiConfig().theme if config.ui.theme in self._themes.faulty else config.ui.theme
        if theme not in self.available_themes:
            known = ", ".join(self._themes.own)
            raise ConfigError(f"key 'ui.theme': unknown theme '{theme}': kvchat has {known}")
        self.theme = theme
        self.keymap = config.keys
        self.set_keymap(config.keys)
        self._settings_file = settings_file or paths.config_file()
        self._client = client
        self.store = store
        self.workspace = Workspace(config, store, client, personas, self._conversation_changed)
        self.chat = ChatScreen(self.workspace, config.ui)
        self._engine = EngineState("loading")
        self._can_restart = False
        self._advice = ""
        """What the banner says."""
        self._asking = False
        """The question whether to quit is on the screen; it answers itself when the last reply ends."""
        self._warned_at = -math.inf
        """When the user was told last that not everything is saved, on the monotonic clock."""

    def get_default_screen(self) -> Screen[None]:
        return self.chat

    def refresh_css(self, animate: bool = True) -> None:
        if self.screen_stack:
            super().refresh_css(animate)
        else:  # what the choice of the theme in __init__ asks for; all styles are read with the first screen
            self.stylesheet.set_variables(self.get_css_variables())

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return block_colors(self.current_theme.dark)

    def get_key_display(self, binding: Binding) -> str:
        display = super().get_key_display(binding)
        return display.upper() if display[:1] == "f" and display[1:].isdigit() else display

    def key_of(self, name: str) -> str:
        """The key of a binding, by its id, as a text names it."""
        return spelled(name, self.keymap)

    def copy_to_clipboard(self, text: str) -> None:
        super().copy_to_clipboard(text)
        clipboard.copy(text)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a toast. What it quotes is shown, never obeyed."""
        super().notify(printable(message), title=printable(title), severity=severity, timeout=timeout, markup=markup)

    async def on_event(self, event: TextualEvent) -> None:
        if isinstance(event, Paste):
            event.text = typed(event.text)
        await super().on_event(event)

    def on_mount(self) -> None:
        for warning in self.workspace.personas.warnings:
            self.notify(warning.problem, title="A persona cannot be used", severity="warning", markup=False)
        self._complain_about_themes()
        self.set_interval(POLL_S, self._reread_themes)
        if not self.store.owns_tabs:
            self.notify("kvchat is open elsewhere: this window starts fresh, and its tabs are not kept", timeout=8)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        if sys.platform != "win32":
            for ending in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(ending, self._end, ending)
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        """The first paint is done."""
        gc.enable()
        self._start_engine()

    def _start_engine(self) -> None:
        self._client.start(self._hear)

    def _hear(self, events: Sequence[Event]) -> None:
        """On the client's thread."""
        self.post_message(EngineEvents(events))

    def on_engine_events(self, message: EngineEvents) -> None:
        running = self.workspace.running()
        self.workspace.dispatch(message.events)
        if self._asking and running and not self.workspace.running():
            self._leave()
        for event in message.events:
            match event:
                case EngineState():
                    self._engine_changed(event)
                case EngineStats():
                    self.chat.stats_changed(event)

    def _engine_changed(self, engine: EngineState) -> None:
        self._engine = engine
        match engine.state:
            case "ready":
                self._can_restart, self._advice = True, ""
                gc.freeze()  # what a start leaves would be looked through in every full collection, 0.1 s each
                if engine.model and engine.model.kv_warning:
                    self.notify(engine.model.kv_warning, title="The KV cache", severity="warning", markup=False)
            case "failed":
                self._advice = f"No engine: {engine.detail} · {self.key_of('restart_engine')} tries again"
            case "died" if self._can_restart:
                self._can_restart = False  # one that dies before it is ready would die again
                self._advice = f"The engine stopped ({engine.detail}), a new one is starting. Nothing written is lost."
                self._start_engine()
            case "died":
                self._advice = (
                    f"The engine stopped before it was ready ({engine.detail}) · "
                    f"{self.key_of('restart_engine')} tries again"
                )
        self.chat.engine_changed(engine, self._advice)
        self.refresh_bindings()

    def action_restart_engine(self) -> None:
        self._advice = ""
        self._engine_changed(EngineState("loading", "starting the engine"))
        self._start_engine()

    @work
    async def pick_model(self) -> None:
        """Let the user choose or install a model; another one is loaded at once, and kept in the settings."""
        from kvchat.tui.screens.confirm import ConfirmScreen
        from kvchat.tui.screens.models import ModelScreen

        chosen = await ask(self.chat, ModelScreen(self.workspace.model))
        if not chosen or (chosen == self.workspace.model and self._engine.state == "ready"):
            return
        question = f"Replies are running. Stop them and load {chosen}?"
        if self.workspace.running() and not await ask(self.chat, ConfirmScreen(question, "Load")):
            return
        try:
            engine = self.workspace.use_model(chosen)
        except StoreError as error:
            self.notify(str(error), severity="error", timeout=10, markup=False)
            return
        self._can_restart, self._advice = False, ""
        self._engine_changed(EngineState("loading", f"loading {chosen}"))
        await asyncio.to_thread(self._client.close)
        self._client.configure(engine)
        self._start_engine()
        self.keep("", "model", chosen)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The engine can be restarted only when there is none."""
        return self._engine.state in ("failed", "died") if action == "restart_engine" else True

    def _reread_themes(self) -> None:
        if self._themes.reread():
            self._complain_about_themes()

    def _complain_about_themes(self) -> None:
        for problem in self._themes.problems.values():
            self.notify(str(problem), title="A theme cannot be used", severity="warning", markup=False)

    def action_change_theme(self) -> None:
        """Let the user choose the colours, and keep the choice in the settings."""
        self._choose_theme()

    @work
    async def _choose_theme(self) -> None:
        from kvchat.tui.screens.themes import ThemeScreen

        if chosen := await ask(self.chat, ThemeScreen(self._themes.own)):
            self.keep("ui", "theme", chosen)

    def keep(self, table: str, key: str, value: str | bool) -> None:
        """Write a choice into the settings."""
        from kvchat.settings_file import change_setting

        try:
            change_setting(self._settings_file, table, key, value)
        except ConfigError as error:
            self.notify(f"The {key} is not kept: {error}", severity="error", timeout=10, markup=False)

    def _conversation_changed(self, tab: ConversationController, change: Change) -> None:
        if self.chat.is_running:
            self.chat.conversation_changed(tab, change)

    @property
    def engine(self) -> EngineState:
        return self._engine

    @property
    def crash(self) -> Exception | None:
        """The error that ended the application, if one did."""
        return self._exception

    def _fatal_error(self) -> None:
        """Leave without Textual's traceback: whoever ran the application reports `crash`."""
        self._close_messages_no_wait()

    async def action_quit(self) -> None:
        """Leave, and ask before replies are cut. Who asks for it again while the question is there, means it."""
        count = self.workspace.running()
        if not count or self._asking:
            self._leave()
        else:
            self._asking = True
            self._ask_to_leave("A reply is" if count == 1 else f"{count} replies are")

    @work
    async def _ask_to_leave(self, what: str) -> None:
        from kvchat.tui.screens.confirm import ConfirmScreen

        question = f"{what} still running. Stop and quit?\nkvchat quits by itself when nothing runs any more."
        if await self.push_screen_wait(ConfirmScreen(question, "Quit")):
            self._leave()
        self._asking = False

    def _end(self, ending: signal.Signals) -> None:
        """Leave because the system says so, and ask nothing."""
        self._leave(128 + ending, ask=False)
        signal.alarm(ENDING_S)  # a terminal that was closed can block Textual's output forever

    def _leave(self, return_code: int = 0, ask: bool = True) -> None:
        """Save everything and exit. What cannot be saved is told first; who then wants to leave at once, leaves."""
        try:
            self.workspace.close_all()
        except StoreError as error:
            if ask and monotonic() - self._warned_at > WARNING_S:
                self._warned_at = monotonic()
                problem = f"Not everything is saved: {error} · {self.key_of('quit')} again leaves without it"
                self.notify(problem, severity="error", timeout=WARNING_S)
            else:
                self.exit(return_code=1, message=str(error))
        else:
            self.exit(return_code=return_code)

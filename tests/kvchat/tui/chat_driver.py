"""A running application, driven by Textual's Pilot over a scripted engine, and what stands on its screen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from time import monotonic

from scripted_client import ScriptedClient
from textual.events import Paste
from textual.pilot import Pilot

from kvchat.conversation import ConversationController
from kvchat.tui.app import KvChatApp

PATIENCE_S = 20.0
"""Until a condition that never comes true fails its test."""


@dataclass
class Chat:
    """A running application, as its user sees it."""

    app: KvChatApp
    pilot: Pilot[None]
    client: ScriptedClient

    @property
    def tab(self) -> ConversationController:
        return self.app.workspace.active

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = monotonic() + PATIENCE_S
        while not condition():
            assert monotonic() < deadline, f"never came true; on the screen:\n{self.text}"
            await self.pilot.pause(0.03)

    async def shows(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))

    async def shows_not(self, text: str) -> None:
        await self.until(lambda: text not in self.text)

    async def talk(self, *turns: tuple[str, str]) -> None:
        """Ask, and let each question be answered."""
        for question, answer in turns:
            self.client.reply(await self.send(question), answer)
        await self.shows("tok/s")

    @property
    def texts(self) -> list[str]:
        """Of the messages of the tab that is shown."""
        return [message.text for message in self.tab.messages]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self.pilot.press(*("space" if character == " " else character for character in text))

    async def send(self, text: str) -> str:
        """Write a message, send it, and return the id of its request."""
        before = len(self.client.requests)
        self.app.chat.active_pane.composer.editor.insert(text)
        await self.pilot.press("enter")
        await self.until(lambda: len(self.client.requests) > before)
        return list(self.client.requests)[-1]

    async def paste(self, text: str) -> None:
        self.app.post_message(Paste(text))
        await self.pilot.pause()


Open = Callable[..., AbstractAsyncContextManager[Chat]]

"""The application over a real store and a scripted engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from chat_driver import Chat, Open
from scripted_client import ScriptedClient

from kvchat.config import Config, UiConfig
from kvchat.personas import load_personas
from kvchat.store import Store
from kvchat.tui import clipboard
from kvchat.tui.app import KvChatApp

DEFAULTS = Config(ui=UiConfig(auto_titles=False))
"""Requests are those that a test makes."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "kvchat.db") as store:
        yield store


@pytest.fixture
def open_chat(store: Store, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens the application: `async with open_chat() as chat`. What it copies stays out of the desktop's clipboard."""
    monkeypatch.setattr(clipboard, "_PROGRAMS", ())

    @asynccontextmanager
    async def open_chat(
        size: tuple[int, int] = (80, 24), config: Config = DEFAULTS, store: Store = store, ready: bool = True
    ) -> AsyncIterator[Chat]:
        client = ScriptedClient()
        app = KvChatApp(config, store, client, load_personas())
        async with app.run_test(size=size, notifications=True) as pilot:
            chat = Chat(app, pilot, client)
            await chat.until(lambda: client.starts)
            if ready:
                client.ready()
                await pilot.pause()
            yield chat

    return open_chat

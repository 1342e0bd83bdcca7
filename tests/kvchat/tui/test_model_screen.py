"""Models chosen and installed in the application."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_driver import Chat, Open
from gguf_maker import TinyGGUF
from textual.widgets import Input, OptionList

from engine.api import EngineState
from engine.locate import installed_names
from kvchat import paths
from kvchat.catalogue.pull import pull
from kvchat.config import load_config
from kvchat.store import Store

SIZE = (130, 40)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    TinyGGUF().write(tmp_path / "tiny.gguf")
    return tmp_path / "tiny.gguf"


async def open_models(chat: Chat) -> None:
    chat.app.chat.active_pane.composer.editor.insert("/model")
    await chat.press("escape", "enter")
    await chat.shows("free · Enter uses or installs it")


async def test_installed_models_are_listed_above_those_that_can_be_had(open_chat: Open, gguf: Path) -> None:
    pull(gguf)
    async with open_chat(size=SIZE) as chat:
        await open_models(chat)
        await chat.shows("tiny", "parameters", "↓ qwen2.5-0.5b-instruct", "to install", "Apache-2.0")


async def test_choosing_a_model_loads_it_in_every_tab_and_keeps_it_in_the_settings(
    open_chat: Open, gguf: Path, store: Store
) -> None:
    pull(gguf)
    async with open_chat(size=SIZE) as chat:
        running = await chat.send("Hello")
        chat.client.accept(running)
        chat.client.say(running, "half")
        await chat.until(lambda: chat.tab.reply and chat.tab.reply.text)
        await open_models(chat)
        await chat.press("home", "enter")
        await chat.shows("Replies are running. Stop them and load tiny?")
        await chat.press("y")
        await chat.until(lambda: chat.client.starts == 2)
        assert chat.client.closed and chat.client.config and chat.client.config.model == "tiny"
        assert chat.client.aborted == [running]
        last = chat.tab.messages[-1]
        assert (last.text, last.status) == ("half", "stopped")

        chat.client.ready()
        request = chat.client.requests[await chat.send("And now?")]
        assert all(not message.token_ids for message in request.messages), "ids are those of another tokenizer"
        assert store.conversation(chat.tab.id).model == "tiny"
        await chat.until(lambda: load_config().model == "tiny")


async def test_the_model_that_runs_is_not_loaded_again(open_chat: Open, gguf: Path) -> None:
    pull(gguf)
    async with open_chat(size=SIZE) as chat:
        chat.app.workspace.use_model("tiny")
        await open_models(chat)
        await chat.shows("● tiny")
        await chat.press("enter")
        await chat.shows_not("Enter uses or installs it")
        assert chat.client.starts == 1
    assert not paths.config_file().exists()


async def test_a_model_is_installed_from_a_path_and_can_then_be_chosen(open_chat: Open, gguf: Path) -> None:
    async with open_chat(size=SIZE) as chat:
        await open_models(chat)
        await chat.press("tab")
        chat.app.screen.query_one(Input).value = str(gguf)
        await chat.press("enter")
        await chat.until(lambda: installed_names() == ["tiny"])
        await chat.shows("tiny", "parameters")
        assert chat.app.screen.query_one(OptionList).highlighted == 0
        await chat.press("enter")
        await chat.until(lambda: chat.client.starts == 2)


async def test_what_cannot_be_installed_says_why_and_the_list_stays(open_chat: Open, tmp_path: Path) -> None:
    async with open_chat(size=SIZE) as chat:
        await open_models(chat)
        await chat.press("tab")
        chat.app.screen.query_one(Input).value = "nonsense"
        await chat.press("enter")
        await chat.shows("unknown model 'nonsense'", "↓ qwen2.5-0.5b-instruct")
        await chat.press("escape")
        await chat.shows_not("Another one")


async def test_a_failed_model_can_be_replaced(open_chat: Open, gguf: Path) -> None:
    pull(gguf)
    async with open_chat(size=SIZE, ready=False) as chat:
        chat.client.emit(EngineState("failed", "no such model"))
        await chat.shows("No engine")
        await open_models(chat)
        await chat.press("home", "enter")
        await chat.until(lambda: chat.client.starts == 2)
        await chat.shows_not("No engine")

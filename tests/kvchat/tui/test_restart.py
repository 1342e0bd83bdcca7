"""What comes back when kvchat is started again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from chat_driver import Open
from full_disk import no_space
from scripted_client import ScriptedClient

from kvchat.config import Config, ConfigError, UiConfig
from kvchat.personas import load_personas
from kvchat.store import Store
from kvchat.tui.app import KvChatApp


async def test_tabs_drafts_and_transcripts_come_back(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("first"), "one")
        await chat.press("ctrl+t")
        chat.client.reply(await chat.send("second"), "two")
        await chat.until(lambda: not chat.app.workspace.running())
        await chat.type("a draft")
        await chat.press("ctrl+t")
        await chat.type("another")
        await chat.press("alt+2", "ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    async with open_chat() as chat:
        await chat.shows("1 first", "2 second", "3 New chat", "two", "41.5 tok/s", "a draft")
        assert chat.tab.title == "second"
        await chat.press("alt+1")
        await chat.shows("one")
        await chat.press("alt+3")
        await chat.shows("another")


@pytest.mark.parametrize("quit_before", [False, True], ids=["the first tab", "an empty tab of the last time"])
async def test_a_conversation_that_goes_on_takes_the_place_of_an_empty_tab(
    store: Store, open_chat: Open, quit_before: bool
) -> None:
    if quit_before:
        async with open_chat() as chat:
            await chat.press("ctrl+q")
            await chat.until(lambda: not chat.app.is_running)
    last = store.create_conversation(title="Story")
    store.append_message(last.id, None, "user", "Tell")
    workspace = KvChatApp(Config(), store, ScriptedClient(), load_personas()).workspace
    workspace.continue_with(last.id)
    assert [tab.id for tab in workspace.tabs] == [last.id] == [each.id for each in store.conversations()]
    assert [tab.conversation_id for tab in store.open_tabs()] == [last.id]


async def test_a_draft_stays_beside_the_conversation_that_goes_on(store: Store) -> None:
    last = store.create_conversation(title="Story")
    store.append_message(last.id, None, "user", "Tell")
    workspace = KvChatApp(Config(), store, ScriptedClient(), load_personas()).workspace
    workspace.active.draft = "not sent yet"
    workspace.continue_with(last.id)
    assert len(workspace.tabs) == 2 and workspace.active.id == last.id


async def test_a_paste_in_a_draft_comes_back_as_a_chip(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("look")
        await chat.paste("x\n" * 100)
        await chat.shows("pasted ·")
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
    async with open_chat() as chat:
        await chat.shows("look", "pasted · 100 lines")


async def test_after_a_crash_the_reply_so_far_is_there_and_can_be_repeated(tmp_path: Path, open_chat: Open) -> None:
    path = tmp_path / "crash.db"
    writer = (
        "import os, sys; from pathlib import Path; from kvchat.store import Store, Tab\n"
        "store = Store.open(Path(sys.argv[1])); store.owns_tabs; id = store.create_conversation(title='Story').id\n"
        "store.save_tabs([Tab(id, True)])\n"
        "asked = store.append_message(id, None, 'user', 'Tell')\n"
        "store.append_message(id, asked.id, 'assistant', 'Once upon', status='streaming')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", writer, str(path)], check=False)
    with Store.open(path) as store:
        async with open_chat(store=store) as chat:
            await chat.shows("Tell", "Once upon", "stopped", "F5 tries again")
            await chat.press("f5")
            await chat.until(lambda: chat.client.requests)


async def test_a_second_window_starts_fresh_and_says_so(tmp_path: Path, store: Store, open_chat: Open) -> None:
    async with open_chat() as first:
        await first.send("first")
        with Store.open(tmp_path / "kvchat.db") as other:
            async with open_chat(store=other) as second:
                await second.shows("kvchat is open elsewhere", "New chat")
                await second.press("ctrl+q")
                await second.until(lambda: not second.app.is_running)
        assert [tab.conversation_id for tab in store.open_tabs()] == [first.tab.id]
    assert len(store.conversations()) == 1


async def test_leaving_with_a_full_disk_is_asked_for_twice(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        await chat.type("a draft")
        with no_space():
            await chat.press("ctrl+q")
            await chat.shows("Not everything is saved")
            assert chat.app.return_code is None
            await chat.press("ctrl+q")
            await chat.until(lambda: chat.app.return_code == 1)


async def test_an_unknown_theme_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="unknown theme 'neon': kvchat has beacon, glacier, harbor, linen"):
        KvChatApp(Config(ui=UiConfig(theme="neon")), store, ScriptedClient(), load_personas())


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)])
@pytest.mark.parametrize("theme", ["harbor", "linen"])
async def test_every_size_and_theme_can_chat(open_chat: Open, size: tuple[int, int], theme: str) -> None:
    async with open_chat(size=size, config=Config(ui=UiConfig(theme=theme))) as chat:
        chat.client.reply(await chat.send("Hello"), "Hi there")
        await chat.shows("Hi there", "Write a message")


@pytest.mark.parametrize("theme", ["nord", "textual-light", "ansi-dark"])
async def test_themes_of_textual_work_too(open_chat: Open, theme: str) -> None:
    async with open_chat(size=(120, 36)) as chat:
        chat.app.theme = theme
        chat.client.reply(await chat.send("Hello"), "Hi there\n\n```python\nprint(1)\n```")
        await chat.shows("Hi there", "print(1)", "KV blocks")


async def test_no_color_is_respected(open_chat: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Hello"), "Hi")
        await chat.shows("Hi")
        assert chat.app.no_color


def test_the_interface_starts_without_torch_and_transformers() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'numba'}"
    program = f"import sys, kvchat.tui.app; print(*{heavy} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""

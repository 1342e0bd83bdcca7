"""The conversation of a tab, written to a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_driver import Chat, Open
from textual.widgets import Input

from engine.api import SamplingParams
from kvchat.exchange import read_conversations
from kvchat.tui.screens.export import suggested_path


async def converse(chat: Chat) -> None:
    chat.client.reply(await chat.send("What is a boat?"), "A [small] ship")
    await chat.until(lambda: not chat.app.workspace.running())


async def command(chat: Chat, text: str) -> None:
    chat.app.chat.active_pane.composer.editor.insert(text)
    await chat.press("enter")


async def test_a_command_writes_the_conversation_in_the_format_of_the_ending(
    open_chat: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_chat(size=(160, 30)) as chat:
        await converse(chat)
        await command(chat, "/export boats.json")
        await chat.shows("Exported to boats.json")
        [exported] = read_conversations((tmp_path / "boats.json").read_bytes(), SamplingParams())
        assert exported.id == chat.tab.id
        assert [message.text for message in exported.messages] == ["What is a boat?", "A [small] ship"]


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("boats.doc", "boats.doc: the format is not clear from the name"),
        ("~nobody-of-that-name/boats.md", "~nobody-of-that-name/boats.md: cannot be written"),
        (f"{'long' * 80}.md", "File name too long"),
    ],
)
async def test_an_export_that_fails_says_why_and_its_command_stays_written(
    open_chat: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_chat(size=(160, 30)) as chat:
        await converse(chat)
        await command(chat, f"/export {file}")
        await chat.shows(problem)
        assert chat.app.chat.active_pane.composer.text == f"/export {file}"


async def test_the_palette_asks_for_a_file_and_before_one_is_replaced(
    open_chat: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "What-is-a-boat.md"
    file.write_text("precious")
    async with open_chat(size=(160, 30)) as chat:
        await converse(chat)
        await chat.press("ctrl+p")
        await chat.shows("Search for commands")
        await chat.type("export conv")
        await chat.shows("Write it to a file")
        await chat.press("down", "enter")
        await chat.shows("Export the conversation")
        assert chat.app.screen.query_one(Input).value == str(file)
        await chat.press("enter")
        await chat.shows("Replace ")
        await chat.press("n")
        await chat.shows_not("Replace ")
        assert file.read_text() == "precious"
        await command(chat, "/export What-is-a-boat.md")
        await chat.shows("Replace ")
        await chat.press("y")
        await chat.shows("Exported to What-is-a-boat.md")
        assert "A [small] ship" in file.read_text()


@pytest.mark.parametrize(
    ("title", "name"),
    [("What is C++?", "What-is-C.md"), ("../../etc", "etc.md"), ("", "conversation.md"), ("船 と 海", "船-と-海.md")],
)
def test_the_file_is_named_after_the_title(title: str, name: str) -> None:
    assert suggested_path(title) == Path.cwd() / name

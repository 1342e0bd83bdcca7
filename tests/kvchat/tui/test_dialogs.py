"""The command palette and the screens over the chat."""

from __future__ import annotations

from time import monotonic

import pytest
from chat_driver import PATIENCE_S, Open
from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.widgets import Input

from kvchat.store import Store
from kvchat.tui import keys
from kvchat.tui.message_keys import ACTIONS


async def test_a_persona_is_picked_with_a_look_at_its_prompt(open_chat: Open) -> None:
    async with open_chat(size=(120, 36)) as chat:
        await chat.press("ctrl+n")
        await chat.shows("New conversation with", "Assistant", "Coder", "Editor")
        await chat.press("down")
        await chat.shows("experienced software engineer")
        await chat.press("enter")
        await chat.until(lambda: len(chat.app.workspace.tabs) == 2)
        await chat.shows("Coder")
        request = await chat.send("Hello")
        assert chat.client.requests[request].messages[0].role == "system"
        assert "experienced" in chat.client.requests[request].messages[0].text


async def test_picking_a_persona_can_be_cancelled(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+n")
        await chat.shows("New conversation with")
        await chat.press("escape")
        await chat.shows_not("New conversation with")
        assert len(chat.app.workspace.tabs) == 1


async def test_the_help_shows_every_key(open_chat: Open) -> None:
    async with open_chat(size=(120, 100)) as chat:
        await chat.press("f1")
        await chat.shows("Keys")
        for bindings in (keys.TABS, keys.MESSAGES, ACTIONS, keys.REPLY, keys.VIEW, keys.PROGRAM):
            for binding in bindings:
                assert binding.tooltip in chat.text
        await chat.press("escape")
        await chat.shows_not("Esc closes this page")


async def test_every_key_has_one_meaning() -> None:
    bound = [
        key
        for section in (keys.TABS, keys.NUMBERED_TABS, keys.REPLY, keys.VIEW, keys.PROGRAM)
        for binding in section
        for key in binding.key.split(",")
    ]
    assert len(bound) == len(set(bound))
    assert not {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+j"} & set(bound), "terminals send these for tab, enter, backspace"


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\x1b3", "alt+3"),
        ("\x1b[51;3u", "alt+3"),
        ("\x1b[5;5~", "ctrl+pageup"),
        ("\x1b[6;6~", "ctrl+shift+pagedown"),
        ("\x1bOQ", "f2"),
        ("\x0a", "ctrl+j"),
        ("\x1b[13;2u", "shift+enter"),
        ("\x14", "ctrl+t"),
        ("\x1b[1;5F", "ctrl+end"),
    ],
)
def test_what_terminals_send_is_understood(sent: str, key: str) -> None:
    parser = XTermParser()
    events = list(parser.feed(sent))
    deadline = monotonic() + PATIENCE_S
    while not events and monotonic() < deadline:  # an escape may be the beginning of more
        events += parser.tick()
    assert [event.key for event in events if isinstance(event, Key)] == [key]


async def run_command(chat, words: str) -> None:
    await chat.press("ctrl+p")
    await chat.shows("Search for commands")
    chat.app.screen.query_one(Input).value = words
    await chat.until(lambda: words.lower() in chat.text.lower().split("search for commands")[-1])
    await chat.pilot.pause(0.2)
    await chat.press("down", "enter")


@pytest.mark.parametrize("words", ["New tab with Tutor", "New tab"])
async def test_the_palette_opens_tabs(open_chat: Open, words: str) -> None:
    async with open_chat() as chat:
        await run_command(chat, words)
        await chat.until(lambda: len(chat.app.workspace.tabs) == 2)


async def test_the_palette_opens_conversations_of_the_history_by_their_words(open_chat: Open, store: Store) -> None:
    conversation = store.create_conversation(title="Old times")
    store.append_message(conversation.id, None, "user", "Where do [albatrosses] nest?")
    async with open_chat() as chat:
        await run_command(chat, "albatrosses")
        await chat.shows("Where do [albatrosses] nest?")
        assert chat.tab.id == conversation.id


async def test_quitting_asks_only_while_a_reply_runs(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "half")
        await chat.press("ctrl+q")
        await chat.shows("A reply is still running")
        await chat.press("escape")
        await chat.shows_not("A reply is still running")
        chat.client.finish(request)
        await chat.until(lambda: not chat.tab.reply)
        await chat.press("ctrl+q")
        await chat.until(lambda: not chat.app.is_running)


async def test_quitting_twice_does_not_ask(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.accept(await chat.send("Hello"))
        await chat.press("ctrl+q", "ctrl+q")
        await chat.until(lambda: not chat.app.is_running)
        assert chat.tab.messages[-1].status == "stopped"


async def test_the_question_whether_to_quit_answers_itself_when_the_last_reply_ends(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        await chat.type("And more")
        await chat.press("enter")
        await chat.press("ctrl+q")
        await chat.shows("A reply is still running", "kvchat quits by itself when nothing runs any more")
        chat.client.reply(request, "Hi")
        await chat.until(lambda: len(chat.client.requests) == 2)
        await chat.shows("A reply is still running")
        chat.client.reply("r2", "Bye")
        await chat.until(lambda: not chat.app.is_running)
        assert [message.text for message in chat.tab.messages] == ["Hello", "Hi", "And more", "Bye"]


async def test_quitting_keeps_what_a_running_reply_has(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "half")
        await chat.until(lambda: chat.tab.reply and chat.tab.reply.text)
        tab = chat.tab
        await chat.press("ctrl+q")
        await chat.shows("A reply is still running")
        await chat.press("y")
        await chat.until(lambda: not chat.app.is_running)
    reply = store.path(tab.id)[-1]
    assert (reply.text, reply.status) == ("half", "stopped")

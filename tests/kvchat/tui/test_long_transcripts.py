"""Conversations and replies much longer than the screen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from chat_driver import Chat, Open

from kvchat.store import Store, Tab
from kvchat.tui.widgets.chat_pane import ChatPane
from kvchat.tui.widgets.reply import AssistantMessage

REPLY = "Reply {0}\n\n## Why\n\n" + "some words " * 60 + "\n\n- one\n- two\n- three\n\n```python\nprint({0})\n```"
MANY = 500
WIDGETS = 400
"""More are never mounted, however long a conversation or a reply is."""


def add_conversation(store: Store, *texts: str) -> str:
    """The user's messages and replies in turn."""
    conversation = store.create_conversation()
    parent = None
    for number, text in enumerate(texts):
        parent = store.append_message(conversation.id, parent, "assistant" if number % 2 else "user", text).id
    return conversation.id


@pytest.fixture
def open_long(open_chat: Open, store: Store) -> Callable[..., object]:
    """Opens the application with a conversation of `messages`, or of MANY, a user's first."""

    @asynccontextmanager
    async def open_long(*messages: str, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Chat]:
        texts = messages or tuple(f"Question {i}\n\n" + REPLY.format(i) for i in range(MANY))
        store.save_tabs([Tab(add_conversation(store, *texts), active=True)])
        async with open_chat(size=size) as chat:
            yield chat

    return open_long


def mounted(chat: Chat) -> int:
    return len(chat.app.query("Transcript *"))


def top_lines(chat: Chat) -> list[str]:
    """What is read, without the scroll bar."""
    return [line[:76] for line in chat.text.splitlines()[1:20]]


async def test_only_what_is_near_the_view_is_mounted(open_long: Open) -> None:
    async with open_long() as chat:
        await chat.shows(f"print({MANY - 1})")
        assert mounted(chat) < WIDGETS
        await chat.press("ctrl+home")
        await chat.shows("Question 0 ")
        assert mounted(chat) < WIDGETS
        await chat.press("ctrl+end")
        await chat.shows(f"print({MANY - 1})")
        await chat.shows_not("more below")
        assert mounted(chat) < WIDGETS


async def test_paging_up_skips_no_line_and_shows_none_twice(open_long: Open) -> None:
    lines = [f"line {number}." for number in range(600)]
    pieces = ["\n\n".join(lines[start : start + 8]) for start in range(0, 600, 8)]
    async with open_long(*pieces) as chat:
        await chat.shows("line 599.")
        seen: list[int] = []
        while "line 480." not in chat.text:
            shown = [int(line.split("line ")[1].split(".")[0]) for line in top_lines(chat) if "line " in line]
            assert shown == list(range(shown[0], shown[-1] + 1))
            assert not seen or shown[-1] >= seen[0] - 1, "a page that joins the one before"
            seen = shown
            await chat.press("pageup")
            await chat.pilot.pause(0.05)


async def test_what_is_read_stays_in_place_when_heights_were_guessed_wrong(open_long: Open) -> None:
    async with open_long() as chat:
        transcript = chat.app.chat.active_pane.transcript
        await chat.shows(f"print({MANY - 1})")
        transcript.scroll_to(y=transcript.max_scroll_y // 2, animate=False)
        await chat.shows("more below", "some words")
        await chat.until(lambda: not transcript._stale)
        before, above = top_lines(chat), transcript.scroll_y
        await transcript.show_message(chat.tab.messages[5].id)
        await chat.shows("Reply 5 ")
        assert top_lines(chat) != before and transcript.scroll_y < above
        transcript.scroll_relative(y=-3, animate=False)
        await chat.pilot.pause()
        here = top_lines(chat)
        transcript._rows.clear()
        transcript.changed()
        await chat.until(lambda: not transcript._stale)
        await chat.pilot.pause()
        assert top_lines(chat) == here


async def test_a_message_far_away_comes_to_the_top_of_the_view(open_long: Open) -> None:
    async with open_long() as chat:
        for number in (3, 251, 100, 499):
            await chat.app.chat.show_message(chat.tab.messages[number].id)
            await chat.shows(f"Reply {number} ")
            assert mounted(chat) < WIDGETS
        await chat.app.chat.show_message(chat.tab.messages[100].id)
        await chat.until(lambda: "Question 100 " in top_lines(chat)[1])


async def test_what_is_read_stays_when_the_width_changes(open_long: Open) -> None:
    async with open_long() as chat:
        await chat.app.chat.show_message(chat.tab.messages[100].id)
        await chat.until(lambda: "Question 100 " in top_lines(chat)[1])
        for width in (50, 120, 80):
            await chat.pilot.resize_terminal(width, 24)
            await chat.until(lambda: "Question 100 " in top_lines(chat)[1])


async def test_a_reply_that_streams_out_of_view_is_there_when_the_user_comes_back(open_long: Open) -> None:
    async with open_long() as chat:
        request = await chat.send("more")
        chat.client.accept(request)
        await chat.press("ctrl+home")
        await chat.shows("Question 0 ", "Context")
        chat.app.clear_notifications()  # that the context is full
        await chat.shows_not("Context")
        before = top_lines(chat)
        for number in range(30):
            chat.client.say(request, f"Streamed {number}.\n\n")
            await chat.pilot.pause()
        assert top_lines(chat) == before
        await chat.press("ctrl+end")
        await chat.shows("Streamed 29.")
        chat.client.finish(request)
        await chat.shows("tok/s")


async def test_another_branch_far_up_can_be_walked_to(open_long: Open, store: Store) -> None:
    async with open_long() as chat:
        await chat.shows(f"print({MANY - 1})")
        await chat.press("alt+r")
        await chat.until(lambda: chat.client.requests)
        chat.client.reply(list(chat.client.requests)[-1], "Another end")
        await chat.shows("Another end", "branch 2/2")
        await chat.press("alt+p")
        await chat.shows(f"print({MANY - 1})", "branch 1/2")


async def test_a_reply_of_10000_lines_streams_without_more_and_more_widgets(open_long: Open) -> None:
    async with open_long("Count", "Yes") as chat:
        request = await chat.send("Go on")
        chat.client.accept(request)
        transcript = chat.app.chat.active_pane.transcript
        for hundred in range(0, 100, 2):
            lines = "".join(f"number {hundred * 100 + number}\n" for number in range(200))
            chat.client.say(request, lines)
            transcript.changed()
            await transcript.catch_up()
            assert mounted(chat) < WIDGETS
        await chat.shows("number 9999")
        chat.client.finish(request)
        await chat.shows("number 9999", "tok/s")
        await chat.press("pageup", "pageup")
        await chat.shows("number 9960", "more below")
        await chat.app.chat.show_message(chat.tab.messages[-1].id)
        await chat.shows("number 0 ", "number 9 ")
        assert mounted(chat) < WIDGETS


async def test_paging_through_a_long_reply_skips_nothing(open_long: Open) -> None:
    async with open_long("Count", "\n".join(f"number {number}." for number in range(3000))) as chat:
        await chat.shows("number 2999.")
        await chat.app.chat.show_message(chat.tab.messages[-1].id)
        await chat.shows("number 0.")
        expected = 0
        for _ in range(15):
            shown = [int(line.split("number ")[1].split(".")[0]) for line in top_lines(chat) if "number " in line]
            assert shown == list(range(shown[0], shown[-1] + 1)) and shown[0] <= expected
            expected = shown[-1] + 1
            await chat.press("pagedown")
            await chat.pilot.pause(0.02)
        assert expected > 200


@pytest.mark.parametrize(
    ("opening", "line"),
    [
        ("", "- item {0}\n"),
        ("```python\n", "x{0} = 1\n"),
        ("| a | b |\n|---|---|\n", "| {0} | x |\n"),
        ("", "word{0} "),
    ],
    ids=["list", "code", "table", "one paragraph"],
)
async def test_one_huge_block_is_drawn_in_part(open_long: Open, opening: str, line: str) -> None:
    text = opening + "".join(line.format(number) for number in range(4_000))
    async with open_long("Write", text) as chat:
        await chat.shows("3999")
        assert mounted(chat) < 2 * WIDGETS  # a cell of a table is a widget
        reply = chat.app.query_one(AssistantMessage)
        assert len(reply.extents()) > len(reply.drawn)


async def test_a_pasted_megabyte_is_shown_in_part(open_long: Open) -> None:
    async with open_long("y" * 1_000_000, "Thanks.", "line\n" * 200_000, "Thanks again.", size=(80, 60)) as chat:
        await chat.shows("999,000 more characters", "199,989 more lines", "Thanks again.")
        chat.app.chat.action_toggle_folds()
        await chat.until(lambda: chat.app.chat.active_pane.transcript.virtual_size.height > 1000)
        assert chat.app.chat.active_pane.transcript.virtual_size.height < 20_000


async def test_a_megabyte_is_pasted_as_a_chip_and_sent_as_a_whole(open_chat: Open) -> None:
    text = "a line of a log file\n" * 50_000
    async with open_chat() as chat:
        await chat.paste(text)
        await chat.shows("pasted · 50,000 lines")
        request = await chat.send("What is wrong?")
        assert chat.client.requests[request].messages[-1].text == f"What is wrong?\n\n{text}"
        await chat.shows("What is wrong?", "more lines")


async def test_hidden_tabs_take_their_messages_away_and_bring_them_back_in_place(open_chat: Open, store: Store) -> None:
    ids = [add_conversation(store, *(f"{name} {number}" for number in range(60))) for name in "abcd"]
    async with open_chat() as chat:
        await chat.app.chat.open_stored(ids[0])
        await chat.shows("a 59")
        await chat.press("ctrl+home")
        await chat.shows("a 0 ")
        for name, conversation_id in zip("bcd", ids[1:], strict=True):
            await chat.app.chat.open_stored(conversation_id)
            await chat.shows(f"{name} 59")
        shown = {pane.controller.id: len(pane.transcript.query("*")) for pane in chat.app.chat.query(ChatPane)}
        gaps = 2
        assert [shown[each] > gaps for each in ids] == [False, False, True, True]
        await chat.app.chat.open_stored(ids[0])
        await chat.shows("a 0 ")
        await chat.app.chat.open_stored(ids[1])
        await chat.shows("b 59")

"""Writing messages."""

from __future__ import annotations

from time import monotonic

import pytest
from chat_driver import PATIENCE_S, Chat, Open
from textual.events import Key, Paste

from kvchat.store import Store
from kvchat.tui.widgets.composer import Chip, Editor

LOG = "\n".join(f"line {number}" for number in range(300))


def sent(chat: Chat) -> list[str]:
    return [request.messages[-1].text for request in chat.client.requests.values()]


def editor(chat: Chat) -> Editor:
    return chat.app.chat.active_pane.composer.editor


def burst(chat: Chat, *keys: str) -> None:
    """Keys that arrive in one read of the terminal; what is longer than a character is the name of a key."""
    for key in keys:
        chat.app.post_message(Key(key, key if len(key) == 1 else None).set_sender(chat.app))


async def test_enter_sends_and_ctrl_j_begins_a_new_line(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.press("a", "ctrl+j", "b", "shift+enter", "c", "enter")
        await chat.until(lambda: sent(chat) == ["a\nb\nc"])
        assert editor(chat).text == ""


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["a", "b", "c", "backspace", "d"], "abd"),
        (["a", "b", "c", "left", "left", "X"], "aXbc"),
        (["a", "ctrl+j", "b", "alt+enter", "c"], "a\nb\nc"),
        (["a", "b", "ctrl+u", "c"], "c"),
        (["b", "home", "a", "end", "c"], "abc"),
    ],
)
async def test_keys_that_arrive_at_once_act_in_the_order_typed(open_chat: Open, keys: list[str], text: str) -> None:
    async with open_chat() as chat:
        burst(chat, *keys)
        await chat.until(lambda: editor(chat).text == text)


async def test_messages_that_arrive_at_once_are_sent_one_by_one(open_chat: Open) -> None:
    async with open_chat() as chat:
        burst(chat, *"first", "enter", *"second", "enter", *"third")
        await chat.until(lambda: editor(chat).text == "third")
        assert sent(chat) == ["first"] and chat.tab.queued == ["second"]
        await chat.until(lambda: chat.tab.draft == "third")


async def test_a_message_taken_back_at_once_is_continued_by_the_keys_after_it(open_chat: Open) -> None:
    async with open_chat() as chat:
        burst(chat, *"one", "enter", *"two", "enter", "up", "!")
        await chat.until(lambda: editor(chat).text == "two!")
        assert sent(chat) == ["one"] and not chat.tab.queued


async def test_a_paste_followed_at_once_by_enter_is_sent(open_chat: Open) -> None:
    async with open_chat() as chat:
        burst(chat, *"Why?")
        chat.app.post_message(Paste(LOG))
        burst(chat, "enter", *"next")
        await chat.until(lambda: editor(chat).text == "next")
        assert sent(chat) == [f"Why?\n\n{LOG}"]


async def test_keys_before_and_after_a_new_tab_go_each_to_their_own(open_chat: Open) -> None:
    async with open_chat() as chat:
        first = editor(chat)
        burst(chat, *"old", "ctrl+t", *"new")
        await chat.until(lambda: editor(chat).text == "new")
        assert first.text == "old"


@pytest.mark.parametrize("text", ["", "  \n "])
async def test_nothing_is_sent_when_nothing_was_written(open_chat: Open, text: str) -> None:
    async with open_chat() as chat:
        editor(chat).insert(text)
        await chat.press("enter")
        await chat.pilot.pause()
        assert not chat.client.requests


async def test_the_composer_grows_with_its_lines(open_chat: Open) -> None:
    async with open_chat() as chat:
        assert editor(chat).size.height == 1
        await chat.press("a", *["ctrl+j"] * 3)
        await chat.until(lambda: editor(chat).size.height == 4)
        await chat.press(*["ctrl+j"] * 20)
        await chat.until(lambda: editor(chat).size.height == 10)


async def test_escape_stops_the_reply_and_keeps_what_arrived(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "Once upon a time")
        await chat.shows("Once upon a time", "esc Stop")
        await chat.press("escape")
        await chat.shows("stopping…")
        chat.client.finish(request, "aborted")
        await chat.shows("Once upon a time", "stopped", "F5 tries again")
        await chat.shows_not("esc Stop")
        assert store.path(chat.tab.id)[-1].text == "Once upon a time"


async def test_a_message_written_while_a_reply_runs_waits_visibly(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("First")
        chat.client.accept(request)
        chat.client.say(request, "text")
        await chat.type("Second")
        await chat.press("enter")
        await chat.shows("Second", "queued · sent after this reply")
        chat.client.finish(request)
        await chat.until(lambda: sent(chat) == ["First", "Second"])
        await chat.shows_not("queued · sent")


async def test_up_in_an_empty_composer_takes_back_the_queued_message(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.send("First")
        await chat.type("Second")
        await chat.press("enter")
        await chat.shows("queued · sent")
        await chat.press("up")
        await chat.until(lambda: editor(chat).text == "Second")
        await chat.shows_not("queued · sent")


async def test_up_in_an_empty_composer_recalls_the_last_message(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Hello again"), "Hi")
        await chat.press("up")
        await chat.until(lambda: editor(chat).text == "Hello again")


async def test_up_and_down_walk_over_what_was_sent(open_chat: Open) -> None:
    async with open_chat() as chat:
        for text in ("one", "//etc?", "two\nlines", "two\nlines"):
            chat.client.reply(await chat.send(text), "Yes")
        await chat.until(lambda: chat.tab.reply is None)
        for key, expected in (
            ("down", ""),
            ("up", "two\nlines"),
            ("up", "two\nlines"),  # to its first line
            ("up", "//etc?"),
            ("up", "one"),
            ("up", "one"),
            ("down", "//etc?"),
            ("down", "two\nlines"),
            ("down", ""),
        ):
            await chat.press(key)
            assert editor(chat).text == expected


async def test_a_recalled_text_that_was_changed_is_a_draft(open_chat: Open) -> None:
    async with open_chat() as chat:
        for text in ("one", "two"):
            chat.client.reply(await chat.send(text), "Yes")
        await chat.until(lambda: chat.tab.reply is None)
        await chat.press("up", "!", "up", "down")
        assert editor(chat).text == "two!"
        await chat.press("ctrl+u", "up", "up")
        assert editor(chat).text == "one"
        await chat.press("enter")
        await chat.until(lambda: sent(chat)[2:] == ["one"])


async def test_a_message_taken_back_is_not_walked_over(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.send("First")
        await chat.type("Second")
        await chat.press("enter", "up", "up", "down")
        assert editor(chat).text == "Second" and not chat.tab.queued


async def test_queued_messages_come_back_to_the_composer_when_the_reply_fails(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("First")
        await chat.type("Second")
        await chat.press("enter")
        chat.client.refuse(request, "longer than the context: 9,000 tokens, 8,192 fit")
        await chat.shows("failed: longer than the context: 9,000 tokens, 8,192 fit")
        await chat.until(lambda: editor(chat).text == "Second")


async def test_a_large_paste_becomes_a_chip_and_is_sent_in_full(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("What is wrong?")
        await chat.paste(LOG)
        await chat.shows("pasted · 300 lines")
        assert "line 299" not in chat.text
        await chat.press("enter")
        await chat.until(lambda: sent(chat) == [f"What is wrong?\n\n{LOG}"])
        await chat.shows_not("pasted ·")


async def test_a_small_paste_is_text_without_control_characters(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.paste("a\r\nb\x1b[31m")
        await chat.until(lambda: editor(chat).text == "a\nb[31m")


async def test_backspace_in_an_empty_composer_removes_the_last_chip(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.paste(LOG)
        await chat.paste("x" * 3000)
        await chat.shows("pasted · 300 lines", "pasted · 3,000 characters")
        await chat.press("backspace")
        await chat.shows_not("3,000 characters")
        assert "300 lines" in chat.text


async def test_a_chip_can_be_clicked_back_into_text(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.paste(LOG)
        await chat.shows("pasted · 300 lines")
        await chat.pilot.click(Chip, offset=(2, 0))
        await chat.until(lambda: editor(chat).text == LOG)
        await chat.shows_not("pasted ·")


async def test_a_click_anywhere_leaves_the_composer_ready(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Hello"), "Hi")
        await chat.shows("tok/s")
        await chat.pilot.click("Transcript")
        await chat.type("more")
        await chat.until(lambda: editor(chat).text == "more")


async def test_every_tab_has_its_own_draft(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("first draft")
        await chat.press("ctrl+t")
        await chat.type("second draft")
        await chat.press("alt+1")
        await chat.shows("first draft")
        assert "second draft" not in chat.text


async def test_a_draft_is_saved_while_it_is_written(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        await chat.type("unfinished")
        await chat.until(lambda: store.open_tabs()[0].draft == "unfinished")


async def test_a_draft_is_saved_although_the_typing_goes_on(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        began = monotonic()
        while not (saved := store.open_tabs()[0].draft) and monotonic() < began + PATIENCE_S:
            await chat.type("x")
        assert saved


async def test_a_message_that_cannot_be_stored_stays_in_the_composer(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        store.delete_conversation(chat.tab.id)
        await chat.type("Hello")
        await chat.press("enter")
        await chat.shows("not sent:")
        assert editor(chat).text == "Hello"

"""Any conversation of the history can be opened."""

from __future__ import annotations

import pytest
from chat_driver import Chat, Open
from textual.widgets import Input, OptionList

from kvchat.store import Conversation, Store
from kvchat.tui import workspace
from kvchat.tui.widgets import finder
from kvchat.tui.widgets.finder import Finder


def add(store: Store, title: str, *texts: str) -> Conversation:
    conversation = store.create_conversation(title=title, persona="coder")
    parent_id = None
    for number, text in enumerate(texts):
        parent_id = store.append_message(conversation.id, parent_id, "assistant" if number % 2 else "user", text).id
    return conversation


async def listed(chat: Chat) -> list[str]:
    """The titles, when the list is what was typed."""
    await chat.until(lambda: not chat.app.screen.query_one(Finder).searching)
    options = chat.app.screen.query_one(OptionList).options
    return [option.prompt.plain.splitlines()[0] for option in options]


async def test_a_closed_conversation_is_opened_after_a_restart(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("one"), "first")
        await chat.until(lambda: not chat.app.workspace.running())
        await chat.press("ctrl+w")
        await chat.until(lambda: chat.tab.title == "")
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        await chat.shows("Open conversation", "one", "Assistant", "first")
        await chat.press("enter")
        await chat.until(lambda: chat.tab.title == "one")
        await chat.shows("first")


async def test_the_newest_comes_first_and_what_is_open_says_so(open_chat: Open, store: Store) -> None:
    add(store, "[b]older[/b]", "Question", "Answer [/]\nsecond line")
    add(store, "newer", "Question")
    store.create_conversation(title="nothing in it")
    async with open_chat(size=(100, 30)) as chat:
        await chat.send("newest")
        await chat.press("ctrl+o")
        assert await listed(chat) == ["newest", "newer", "[b]older[/b]"]
        assert chat.text.count("open · ") == 1
        await chat.shows("[b]older[/b]", "Coder · Answer [/] second line", "3 shown")


async def test_words_find_titles_and_messages(open_chat: Open, store: Store) -> None:
    add(store, "Birds", "Where do [albatrosses] nest?", "Albatrosses nest on islands.")
    add(store, "Albatross poem", "Write one")
    add(store, "Fish", "What do they eat?")
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        await chat.shows("Open conversation")
        await chat.type("albatr")
        assert await listed(chat) == ["Albatross poem", "Birds"]
        await chat.shows("Albatrosses nest on islands")
        await chat.press("down", "enter")
        await chat.until(lambda: chat.tab.title == "Birds")


async def test_enter_right_after_the_words_opens_what_they_find(open_chat: Open, store: Store) -> None:
    add(store, "Birds", "Where do albatrosses nest?")
    add(store, "Fish", "What do they eat?")
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        await chat.shows("Fish")
        chat.app.screen.query_one(Input).value = "nest"
        await chat.press("enter")
        await chat.until(lambda: chat.tab.title == "Birds")


async def test_nothing_found_is_no_choice(open_chat: Open, store: Store) -> None:
    add(store, "Fish", "What do they eat?")
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        await chat.shows("Fish")
        await chat.type("zebra")
        await chat.shows("0 shown")
        await chat.press("enter", "escape")
        await chat.shows_not("Open conversation")
        assert chat.tab.title == ""


async def test_a_conversation_that_is_open_is_shown_and_not_opened_twice(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.send("one")
        await chat.press("ctrl+t", "ctrl+o")
        await chat.shows("Open conversation")
        await chat.press("enter")
        await chat.until(lambda: chat.tab.title == "one")
        assert len(chat.app.workspace.tabs) == 2


async def test_a_closed_tab_opened_from_the_history_has_its_draft(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("one"), "first")
        await chat.until(lambda: not chat.app.workspace.running())
        await chat.type("unsent")
        await chat.press("ctrl+w")
        await chat.until(lambda: chat.tab.title == "")
        await chat.press("ctrl+o")
        await chat.shows("Open conversation")
        await chat.press("enter")
        await chat.shows("unsent")


async def test_a_click_opens_a_conversation(open_chat: Open, store: Store) -> None:
    add(store, "Birds", "Where do albatrosses nest?")
    add(store, "Fish", "What do they eat?")
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        await chat.shows("Birds")
        await chat.pilot.click("#history OptionList", offset=(5, 2))
        await chat.until(lambda: chat.tab.title == "Birds")


async def test_a_long_history_shows_its_beginning_and_says_how_much_there_is(
    open_chat: Open, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder, "ROWS", 3)
    for number in range(8):
        add(store, f"number {number}", "Question")
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        assert await listed(chat) == ["number 7", "number 6", "number 5"]
        await chat.shows("3 shown · 5 more: type to find them")
        await chat.type("question")
        assert await listed(chat) == ["number 7", "number 6", "number 5"]
        await chat.shows("3 shown · 5 more")
        monkeypatch.setattr(workspace, "SEARCH_HITS", 2)
        await chat.type(" ")
        await chat.shows("2 shown · more")


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)])
async def test_the_list_fits_every_size(open_chat: Open, store: Store, size: tuple[int, int]) -> None:
    add(store, "Birds " * 40, "Where do albatrosses nest? " * 40)
    add(store, "Fish", "What do they eat?")
    async with open_chat(size=size) as chat:
        await chat.press("ctrl+o")
        await chat.shows("Fish", "Birds", "Esc cancels")


async def test_what_was_found_is_jumped_to(open_chat: Open, store: Store) -> None:
    add(store, "Long", *(f"message {number} " + ("albatross" if number == 4 else "") for number in range(60)))
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        await chat.type("albatross")
        assert await listed(chat) == ["Long"]
        await chat.press("enter")
        await chat.shows("message 4 albatross")


async def test_an_archived_conversation_is_found_by_words_only_and_can_be_put_back(
    open_chat: Open, store: Store
) -> None:
    add(store, "Birds", "Where do albatrosses nest?")
    add(store, "Fish", "What do they eat?")
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        assert await listed(chat) == ["Fish", "Birds"]
        await chat.press("f8")
        assert await listed(chat) == ["Birds"]
        await chat.type("fish")
        assert await listed(chat) == ["Fish"]
        await chat.shows("archived · ")
        await chat.press("f8")
        assert not store.conversations()[0].archived


async def test_a_conversation_is_deleted_after_a_question(open_chat: Open, store: Store) -> None:
    add(store, "Birds", "Where do albatrosses nest?")
    add(store, "Fish", "What do they eat?")
    async with open_chat() as chat:
        await chat.press("ctrl+o")
        await chat.shows("Fish")
        await chat.press("ctrl+x")
        await chat.shows("Delete this conversation for good?")
        await chat.press("enter")
        assert await listed(chat) == ["Fish", "Birds"], "Enter alone deletes nothing"
        await chat.press("ctrl+x")
        await chat.shows("Delete this conversation for good?")
        await chat.press("y")
        await chat.shows("1 shown")
        assert await listed(chat) == ["Birds"]


async def test_an_open_conversation_is_not_deleted(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        await chat.send("one")
        await chat.press("ctrl+o")
        await chat.shows("Open conversation", "open · ")
        await chat.press("ctrl+x")
        await chat.shows("close its tab first")
        assert store.conversations()

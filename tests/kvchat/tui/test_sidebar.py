"""All conversations at the left of the one that is shown."""

from __future__ import annotations

import time

import pytest
from chat_driver import Chat, Open
from textual.widgets import Input, OptionList

from kvchat import paths
from kvchat.config import Config, UiConfig, load_config
from kvchat.store import Conversation, Store
from kvchat.tui.widgets.sidebar import Sidebar
from kvchat.tui.widgets.tab_bar import SidebarSwitch

WIDE = (160, 36)
DAY_S = 86_400


def add(store: Store, title: str, *texts: str, days_ago: float = 0) -> Conversation:
    conversation = store.create_conversation(title=title)
    parent = None
    for number, text in enumerate(texts or ("Question",)):
        parent = store.append_message(conversation.id, parent, "assistant" if number % 2 else "user", text).id
    with store._database.transaction() as connection:
        moment = time.time() - days_ago * DAY_S
        connection.execute("UPDATE conversations SET updated_at = ? WHERE id = ?", (moment, conversation.id))
    return conversation


def sidebar(chat: Chat) -> Sidebar:
    return chat.app.chat.query_one(Sidebar)


async def rows(chat: Chat) -> list[str]:
    """What is listed, when that is what was typed."""
    await chat.until(lambda: not sidebar(chat).searching)
    return [option.prompt.plain for option in sidebar(chat).query_one(OptionList).options]


async def opened(chat: Chat) -> None:
    await chat.press("alt+s")
    await chat.until(lambda: sidebar(chat).display and sidebar(chat).query_one(Input).has_focus)


async def test_conversations_are_listed_by_day_without_the_archived_ones(open_chat: Open, store: Store) -> None:
    add(store, "Long ago", days_ago=800)
    add(store, "Fish", days_ago=1)
    store.update_conversation(add(store, "Put away").id, archived=True)
    add(store, "[b]Birds[/b]")
    async with open_chat(size=WIDE) as chat:
        await opened(chat)
        *recent, month, oldest = await rows(chat)
        assert recent == ["Today", "  [b]Birds[/b]", "Yesterday", "  Fish"]
        assert month.split()[-1].isdigit() and oldest == "  Long ago"


async def test_words_find_titles_and_messages_and_enter_jumps_to_the_message(open_chat: Open, store: Store) -> None:
    add(store, "Fish")
    add(store, "Long", *(f"message {number} {'albatross' if number == 4 else ''}" for number in range(40)))
    async with open_chat(size=WIDE) as chat:
        await opened(chat)
        await chat.type("albatross")
        assert await rows(chat) == ["  Long"]
        await chat.press("enter")
        await chat.shows("message 4 albatross")
        assert chat.tab.title == "Long"
        await chat.until(lambda: chat.app.chat.active_pane.composer.editor.has_focus)
        assert len(await rows(chat)) == 3, "the words are gone, and all are listed again"


async def test_the_highlight_moves_over_conversations_and_not_over_days(open_chat: Open, store: Store) -> None:
    add(store, "Fish", days_ago=1)
    add(store, "Birds")
    async with open_chat(size=WIDE) as chat:
        await opened(chat)
        await rows(chat)
        await chat.press("down")
        await chat.press("down")
        await chat.press("enter")
        await chat.until(lambda: chat.tab.title == "Fish")


async def test_badges_and_the_tab_that_is_shown_are_up_to_date(open_chat: Open) -> None:
    async with open_chat(size=WIDE) as chat:
        await chat.press("alt+s")
        await chat.press("escape")
        first = await chat.send("Ask A")
        await chat.press("ctrl+t")
        await chat.send("Ask B")
        chat.client.accept(first)
        chat.client.say(first, "text")

        async def listed(*expected: str) -> None:
            async def matches() -> bool:
                return [row for row in await rows(chat) if "Ask" in row] == list(expected)

            while not await matches():
                await chat.pilot.pause(0.05)

        await listed("○ Ask B", "● Ask A")
        chat.client.finish(first)
        await listed("○ Ask B", "◆ Ask A")
        assert sidebar(chat).highlighted.conversation.id == chat.tab.id
        await chat.press("alt+1")
        await listed("○ Ask B", "  Ask A")
        await chat.until(lambda: sidebar(chat).highlighted.conversation.title == "Ask A")


async def test_the_key_opens_goes_there_and_closes_and_escape_goes_back(open_chat: Open) -> None:
    async with open_chat(size=WIDE) as chat:
        composer = chat.app.chat.active_pane.composer
        await opened(chat)
        await chat.type("words")
        await chat.press("escape")
        await chat.until(lambda: composer.editor.has_focus)
        assert sidebar(chat).display and sidebar(chat).query_one(Input).value == ""
        await opened(chat)
        await chat.press("alt+s")
        await chat.until(lambda: composer.editor.has_focus and not sidebar(chat).display)


async def test_escape_in_the_sidebar_does_not_stop_the_reply(open_chat: Open) -> None:
    async with open_chat(size=WIDE) as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        await opened(chat)
        await chat.press("escape")
        await chat.until(lambda: chat.app.chat.active_pane.composer.editor.has_focus)
        assert chat.client.aborted == []
        await chat.press("escape")
        assert chat.client.aborted == [request]


async def test_whether_it_is_open_is_kept_in_the_settings(open_chat: Open) -> None:
    async with open_chat(size=WIDE) as chat:
        await opened(chat)
        assert load_config(paths.config_file()).ui.sidebar
        await chat.press("alt+s")
        await chat.until(lambda: not sidebar(chat).display)
        assert not load_config(paths.config_file()).ui.sidebar


async def test_it_opens_with_the_application_when_the_settings_say_so(open_chat: Open, store: Store) -> None:
    add(store, "Birds")
    async with open_chat(size=WIDE, config=Config(ui=UiConfig(sidebar=True))) as chat:
        await chat.shows("Today", "Birds")
        assert chat.app.chat.active_pane.composer.editor.has_focus
        await chat.type("straight to the composer")
        assert chat.tab.draft == "straight to the composer"


@pytest.mark.parametrize("size", [(40, 10), (79, 24)])
async def test_in_a_narrow_terminal_it_lies_over_the_conversation_and_goes_after_the_choice(
    open_chat: Open, store: Store, size: tuple[int, int]
) -> None:
    add(store, "Birds")
    async with open_chat(size=size) as chat:
        width = chat.app.chat.active_pane.size.width
        await opened(chat)
        await chat.shows("Birds")
        assert chat.app.chat.active_pane.size.width == width
        await chat.press("down", "enter")
        await chat.until(lambda: chat.tab.title == "Birds" and not sidebar(chat).display)
        assert not paths.config_file().exists(), "it was not to stay"


async def test_the_panel_gives_way_where_there_is_no_space_for_both(open_chat: Open) -> None:
    async with open_chat(size=(120, 36)) as chat:
        await chat.shows("KV blocks")
        await opened(chat)
        await chat.shows("0 / 512 blocks")
        await chat.shows_not("KV blocks")
        await chat.press("alt+s")
        await chat.shows("KV blocks")


async def test_a_click_opens_a_conversation_and_one_into_the_field_lets_words_be_typed(
    open_chat: Open, store: Store
) -> None:
    add(store, "Fish")
    add(store, "Birds")
    async with open_chat(size=WIDE, config=Config(ui=UiConfig(sidebar=True))) as chat:
        await chat.shows("Birds")
        await chat.pilot.click("Sidebar Input")
        await chat.type("fi")
        assert await rows(chat) == ["  Fish"]
        await chat.pilot.click("Sidebar OptionList", offset=(4, 0))
        await chat.until(lambda: chat.tab.title == "Fish")


async def test_a_conversation_is_archived_from_the_sidebar(open_chat: Open, store: Store) -> None:
    add(store, "Fish")
    add(store, "Birds")
    async with open_chat(size=WIDE) as chat:
        await opened(chat)
        await rows(chat)
        await chat.press("down", "f8")
        await chat.until(lambda: sum(each.archived for each in store.conversations(include_archived=True)) == 1)
        assert len(await rows(chat)) == 2


async def test_the_mouse_opens_and_closes_it(open_chat: Open) -> None:
    async with open_chat(size=WIDE) as chat:
        await chat.pilot.click(SidebarSwitch)
        await chat.until(lambda: sidebar(chat).display and sidebar(chat).query_one(Input).has_focus)
        await chat.press("escape")
        await chat.pilot.click(SidebarSwitch)
        await chat.until(lambda: not sidebar(chat).display)


async def test_a_tag_is_listed_with_its_conversation_and_finds_it(open_chat: Open, store: Store) -> None:
    add(store, "Fish", days_ago=2)
    birds = add(store, "Birds", days_ago=1)
    store.update_conversation(birds.id, tags=["draft"])
    async with open_chat(size=WIDE) as chat:
        chat.client.reply(await chat.send("Trees"), "Tall.")
        await chat.type("/tag draft #Work")
        await chat.press("enter")
        await chat.shows("#draft #work")
        await opened(chat)
        await chat.until(lambda: "Trees\n  #draft #work" in sidebar(chat).query_one(OptionList).options[1].prompt.plain)
        await chat.type("#dr")
        assert await rows(chat) == ["  Trees\n  #draft #work", "  Birds\n  #draft"]
        await chat.press("escape", "escape")
        await chat.type("/tag draft")
        await chat.press("enter")
        await chat.until(lambda: chat.tab.conversation.tags == ("work",))
        assert store.tags() == ["draft", "work"]

"""Several conversations at once."""

from __future__ import annotations

import pytest
from chat_driver import Chat, Open
from full_disk import no_space
from textual.widgets import Input

from kvchat.store import Store, StoreError
from kvchat.tui.widgets.tab_bar import NewTab, TabLabel


def titles(chat: Chat) -> list[str]:
    return [tab.title for tab in chat.app.workspace.tabs]


async def test_two_tabs_stream_at_the_same_time(open_chat: Open) -> None:
    async with open_chat() as chat:
        first = await chat.send("First question")
        await chat.press("ctrl+t")
        second = await chat.send("Second question")
        for request, text in ((first, "one "), (second, "two "), (first, "three"), (second, "four")):
            if not chat.client.fed.get(request):
                chat.client.accept(request)
            chat.client.say(request, text)
        await chat.shows("two four")
        assert "one three" not in chat.text
        await chat.press("ctrl+pageup")
        await chat.shows("one three")
        assert "two four" not in chat.text
        chat.client.finish(first)
        chat.client.finish(second)
        await chat.until(lambda: not chat.app.workspace.running())


async def test_a_hidden_tab_draws_nothing_and_catches_up_when_it_is_shown(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "seen")
        await chat.shows("seen")
        await chat.press("ctrl+t")
        hidden = chat.app.query_one("AssistantMessage ReplyMarkdown")
        chat.client.say(request, " unseen")
        await chat.until(lambda: chat.app.workspace.tabs[0].reply.text == "seen unseen")
        await chat.pilot.pause(0.3)
        assert hidden.source == "seen"
        await chat.press("alt+1")
        await chat.shows("seen unseen")


async def test_a_badge_tells_busy_unread_and_failed_tabs(open_chat: Open) -> None:
    async with open_chat() as chat:
        requests = []
        for question in ("Ask A", "Ask B", "Ask C"):
            requests.append(await chat.send(question))
            await chat.press("ctrl+t")
        await chat.shows("Ask A ○", "Ask B ○", "Ask C ○")
        for request in requests:
            chat.client.accept(request)
            chat.client.say(request, "text")
        await chat.shows("Ask A ●", "Ask B ●", "Ask C ●")
        chat.client.finish(requests[0])
        chat.client.refuse(requests[1], "no")
        await chat.shows("Ask A ◆", "Ask B !", "Ask C ●")
        await chat.press("alt+1")
        await chat.shows_not("Ask A ◆")


async def test_tabs_are_reached_by_number_and_neighbourhood(open_chat: Open) -> None:
    async with open_chat() as chat:
        for text in ("one", "two", "three"):
            await chat.send(text)
            if text != "three":
                await chat.press("ctrl+t")
        for keys, expected in (
            (["alt+1"], "one"),
            (["ctrl+pagedown"], "two"),
            (["ctrl+pagedown", "ctrl+pagedown"], "one"),
            (["ctrl+pageup"], "three"),
            (["alt+9"], "three"),
        ):
            await chat.press(*keys)
            assert chat.tab.title == expected


async def test_keys_typed_right_after_a_new_tab_land_in_it(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+t", "h", "i")
        assert [tab.draft for tab in chat.app.workspace.tabs] == ["", "hi"]


async def test_a_tab_is_moved(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.send("one")
        await chat.press("ctrl+t")
        await chat.send("two")
        await chat.press("ctrl+shift+pageup")
        assert titles(chat) == ["two", "one"]
        await chat.shows("1 two", "2 one")


async def test_closing_a_tab_shows_its_neighbour_and_keeps_the_conversation(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("one"), "first")
        await chat.press("ctrl+t")
        chat.client.reply(await chat.send("two"), "second")
        await chat.until(lambda: not chat.app.workspace.running())
        await chat.press("ctrl+w")
        await chat.until(lambda: titles(chat) == ["one"])
        await chat.shows("first")
        assert {each.title for each in store.conversations()} == {"one", "two"}


async def test_closing_the_last_tab_opens_a_fresh_one(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("one"), "first")
        await chat.until(lambda: not chat.app.workspace.running())
        await chat.press("ctrl+w")
        await chat.shows("Everything stays on this machine")
        assert titles(chat) == [""]


async def test_an_empty_conversation_is_forgotten_when_its_tab_closes(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        await chat.press("ctrl+t", "ctrl+t", "ctrl+w", "ctrl+w")
        await chat.until(lambda: len(chat.app.workspace.tabs) == 1)
        assert len(store.conversations()) == 1


async def test_closing_a_running_tab_asks_first(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        request = await chat.send("one")
        chat.client.accept(request)
        chat.client.say(request, "half")
        await chat.press("ctrl+w")
        await chat.shows("A reply is still running")
        await chat.press("n")
        await chat.shows_not("A reply is still running")
        assert chat.tab.reply
        await chat.press("ctrl+w")
        await chat.shows("A reply is still running")
        await chat.press("y")
        await chat.until(lambda: titles(chat) == [""])
        assert chat.client.aborted == [request]
        [conversation] = [each for each in store.conversations() if each.title == "one"]
        assert store.path(conversation.id)[-1].text == "half"


async def test_a_closed_tab_can_be_opened_again(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("one"), "first")
        await chat.until(lambda: not chat.app.workspace.running())
        await chat.press("ctrl+w")
        await chat.until(lambda: titles(chat) == [""])
        await chat.app.chat.action_reopen_tab()
        await chat.shows("first")
        await chat.app.chat.open_stored(chat.tab.id)
        assert titles(chat) == ["one", ""]


async def test_a_closed_tab_comes_back_to_its_place(open_chat: Open) -> None:
    async with open_chat() as chat:
        for text in ("one", "two", "three"):
            chat.client.reply(await chat.send(text), "answer")
            await chat.press("ctrl+t")
        await chat.until(lambda: not chat.app.workspace.running())
        for key in ("alt+2", "ctrl+w", "ctrl+w"):
            await chat.press(key)
        await chat.until(lambda: titles(chat) == ["one", ""])
        for _ in range(2):
            await chat.app.chat.action_reopen_tab()
        assert titles(chat) == ["one", "two", "three", ""]


async def test_a_closed_tab_comes_back_with_its_draft(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("unsent")
        await chat.press("ctrl+w")
        await chat.until(lambda: chat.tab.draft == "")
        await chat.app.chat.action_reopen_tab()
        await chat.shows("unsent")


async def test_with_no_closed_tab_opening_one_again_says_where_the_others_are(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.app.chat.action_reopen_tab()
        await chat.shows("no closed tab; Ctrl+O opens any conversation")


async def test_a_tab_that_cannot_be_saved_stays_open_and_the_others_are_saved_at_the_end(
    open_chat: Open, store: Store
) -> None:
    async with open_chat() as chat:
        requests = [await chat.send("one")]
        await chat.press("ctrl+t")
        requests.append(await chat.send("two"))
        for request in requests:
            chat.client.accept(request)
            chat.client.say(request, "half")
        workspace = chat.app.workspace
        await chat.until(lambda: all(tab.reply.text for tab in workspace.tabs))
        with no_space(), pytest.raises(StoreError):
            workspace.close(workspace.active)
        assert titles(chat) == ["one", "two"]
        workspace.close_all()
        assert [store.path(tab.id)[-1].text for tab in workspace.tabs] == ["half", "half"]


async def test_a_tab_is_renamed(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        await chat.send("one")
        await chat.press("f2")
        await chat.shows("Rename the conversation")
        chat.app.screen.query_one(Input).value = "  [b]My   title[/b] "
        await chat.press("enter")
        await chat.shows("[b]My title[/b]")
        assert store.conversation(chat.tab.id).title == "[b]My title[/b]"


async def test_tabs_work_by_mouse(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.send("one")
        await chat.pilot.click(NewTab)
        await chat.until(lambda: len(chat.app.workspace.tabs) == 2)
        await chat.until(lambda: len(chat.app.query(TabLabel)) == 2)
        await chat.pilot.click(TabLabel)
        await chat.until(lambda: chat.tab.title == "one")
        await chat.pilot.click(list(chat.app.query(TabLabel))[1])
        await chat.until(lambda: chat.tab.title == "")
        label = list(chat.app.query(TabLabel))[1]
        await chat.until(lambda: label.has_class("-active"))
        await chat.pilot.click(label, offset=(label.size.width - 2, 0))
        await chat.until(lambda: titles(chat) == ["one"])

"""Tabs by mouse, and tabs that were closed."""

from __future__ import annotations

from chat_driver import Chat, Open


async def talk(chat: Chat, question: str, answer: str) -> None:
    chat.client.reply(await chat.send(question), answer)
    await chat.shows(answer, "tok/s")


async def test_a_double_click_on_a_tab_renames_it(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, "one", "two")
        await chat.pilot.click("TabLabel", offset=(2, 0), times=2)
        await chat.shows("Rename the conversation")


async def test_closed_tabs_come_back_in_their_order(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, "one", "two")
        await chat.press("ctrl+t")
        await talk(chat, "three", "four")
        await chat.press("ctrl+w", "ctrl+w")
        await chat.shows("Everything stays on this machine")
        await chat.press("alt+t")
        await chat.shows("one", "two")
        await chat.press("alt+t")
        await chat.shows("three", "four")


async def test_a_tab_is_dragged_to_another_place(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, "one", "two")
        await chat.press("ctrl+t")
        await talk(chat, "a long title", "four")
        await chat.shows("1 one  2 a long title")
        begin = chat.text.index("1 one")
        await chat.pilot.mouse_down("TabBar", offset=(begin + 1, 0))
        await chat.pilot.hover("TabBar", offset=(begin + 9, 0))
        await chat.pilot.hover("TabBar", offset=(begin + 17, 0))
        await chat.shows("1 a long title", "2 one")
        await chat.pilot.hover("TabBar", offset=(begin + 21, 0))
        await chat.pilot.mouse_up("TabBar", offset=(begin + 21, 0))
        await chat.pilot.hover("TabBar", offset=(begin + 1, 0))
        await chat.pilot.pause()
        assert [tab.title for tab in chat.app.workspace.tabs] == ["a long title", "one"]


async def test_a_tab_can_be_closed_while_its_reply_is_drawn(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, "Stay", "Here.")
        await chat.press("ctrl+t")
        request = await chat.send("Go")
        chat.client.accept(request)
        chat.client.say(request, "First words")
        await chat.shows("First words")
        pane, closed = chat.app.chat.active_pane, chat.tab
        assert closed.reply
        closed.reply.text = "Other words"
        chat.app.workspace.close(closed)
        removal = pane.remove()
        pane.transcript.changed()
        await pane.transcript.catch_up()
        await removal
        await chat.app.chat.forget(closed)
        await chat.app.chat.show_active()
        await chat.pilot.pause()
        await chat.shows("Here.")

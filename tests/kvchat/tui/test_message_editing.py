"""A message that was sent is changed and sent again."""

from __future__ import annotations

from chat_driver import Chat, Open

from kvchat.store import Store


async def test_an_edited_message_is_sent_as_a_branch_and_the_draft_comes_back(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"), ("three", "four"))
        await chat.type("draft")
        await chat.press("alt+up", "k", "k", "k", "e")
        await chat.shows("Editing", "one")
        await chat.type(" more")
        await chat.press("enter")
        await chat.until(lambda: len(chat.client.requests) == 3)
        chat.client.reply("r3", "five")
        await chat.shows("one more", "branch 2/2", "five", "draft")
        await chat.shows_not("Editing")
        assert chat.texts == ["one more", "five"]
        await chat.until(lambda: chat.tab.draft == "draft")


async def test_esc_gives_an_edit_up_and_a_running_reply_goes_on(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"))
        request = await chat.send("three")
        chat.client.accept(request)
        await chat.type("draft")
        await chat.press("alt+e")
        await chat.shows("Editing")
        await chat.press("x", "escape")
        await chat.shows_not("Editing")
        assert chat.app.chat.active_pane.composer.text == "draft" and chat.client.aborted == []
        await chat.press("escape")
        assert chat.client.aborted == [request]


async def test_a_message_that_begins_with_a_slash_stays_one_when_it_is_edited(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("//etc is full", "So?"))
        await chat.press("alt+e")
        await chat.shows("//etc is full")
        await chat.press("enter")
        await chat.until(lambda: "r2" in chat.client.requests)
        assert chat.client.requests["r2"].messages[-1].text == "/etc is full"


async def editing_while_one_waits(chat: Chat) -> str:
    """A running reply, a message that waits, and the composer with the text of the running one; its request."""
    request = await chat.send("one")
    chat.client.accept(request)
    await chat.type("waits")
    await chat.press("enter")
    await chat.until(lambda: chat.tab.queued == ["waits"])
    await chat.press("alt+e")
    await chat.shows("Editing")
    return request


async def test_while_a_message_is_edited_those_that_wait_stay_where_they_are(open_chat: Open) -> None:
    async with open_chat(size=(80, 40)) as chat:
        await editing_while_one_waits(chat)
        await chat.press("ctrl+u", "up")
        await chat.pilot.click("UserMessage.-queued")
        await chat.shows("Send the edit first")
        assert chat.tab.queued == ["waits"] and chat.app.chat.active_pane.composer.text == ""
        await chat.press("escape")
        await chat.shows_not("Editing")
        await chat.press("up")
        await chat.until(lambda: chat.app.chat.active_pane.composer.text == "waits")


async def test_an_edit_goes_on_when_the_engine_dies_and_what_waited_comes_after_it(open_chat: Open) -> None:
    async with open_chat(size=(80, 40)) as chat:
        await editing_while_one_waits(chat)
        await chat.type(" more")
        chat.client.die()
        await chat.until(lambda: not chat.tab.reply)
        composer = chat.app.chat.active_pane.composer
        assert composer.text == "one more" and "Editing" in chat.text
        await chat.press("escape")
        await chat.until(lambda: composer.text == "waits")
        assert chat.tab.unsent == "waits"


async def test_an_edit_is_kept_as_a_draft_before_the_one_that_waits_for_its_end(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"))
        await chat.type("draft")
        await chat.press("alt+e")
        await chat.shows("Editing")
        await chat.until(lambda: store.open_tabs()[0].draft == "draft")
        await chat.type(" more")
        await chat.until(lambda: store.open_tabs()[0].draft == "one more\n\ndraft")
        await chat.press("ctrl+q")
    async with open_chat() as chat:
        await chat.until(lambda: chat.app.chat.active_pane.composer.text == "one more\n\ndraft")


async def test_an_edit_that_was_left_is_no_draft(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"))
        await chat.press("alt+e")
        await chat.type(" more")
        await chat.until(lambda: store.open_tabs()[0].draft == "one more")
        await chat.press("escape")
        await chat.until(lambda: store.open_tabs()[0].draft == "")


async def test_another_edit_leaves_the_text_of_the_first_in_the_draft(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"), ("three", "four"))
        await chat.press("alt+e")
        await chat.type(" more")
        await chat.press("alt+e")
        assert chat.app.chat.active_pane.composer.text == "three more", "the same one: it goes on"
        await chat.press("alt+up", "k", "k", "k", "e")
        await chat.until(lambda: chat.app.chat.active_pane.composer.text == "one")
        await chat.press("escape")
        await chat.until(lambda: chat.app.chat.active_pane.composer.text == "three more")


async def test_regenerating_leaves_an_edit_alone(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"))
        await chat.press("alt+e")
        await chat.type(" more")
        await chat.press("alt+up", "r")
        await chat.until(lambda: len(chat.client.requests) == 2)
        assert chat.app.chat.active_pane.composer.text == "one more" and "Editing" in chat.text

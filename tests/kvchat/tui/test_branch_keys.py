"""Regenerating a reply and walking between the branches by keys."""

from __future__ import annotations

from chat_driver import Open


async def test_replies_are_regenerated_and_walked_between(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Hello"), "first words")
        await chat.shows("first words", "tok/s")
        await chat.press("alt+r")
        await chat.until(lambda: "r2" in chat.client.requests)
        chat.client.reply("r2", "other words")
        await chat.shows("other words", "branch 2/2")
        await chat.shows_not("first words")
        await chat.press("alt+p")
        await chat.shows("Hello", "first words", "branch 1/2")
        await chat.press("alt+n")
        await chat.shows("other words", "branch 2/2")


async def test_a_branch_shorter_than_what_was_scrolled_away_is_shown(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Hello"), "first words")
        await chat.press("alt+r")
        chat.client.reply("r2", "other words")
        for _ in range(8):
            chat.client.reply(await chat.send("more"), "yes")
        conversation = chat.tab.id
        await chat.press("ctrl+w")
        await chat.app.chat.open_stored(conversation)
        await chat.shows("yes")
        await chat.press("alt+n")
        await chat.shows("first words", "branch 1/2")

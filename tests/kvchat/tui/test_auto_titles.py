"""Titles made by the model, as they appear."""

from __future__ import annotations

from chat_driver import Open

from engine.api import Finished, Metrics
from kvchat.config import Config, UiConfig

EGG = "How do I boil an egg so that the yolk stays soft, and for how long?"


async def test_the_tab_is_renamed_when_the_title_is_there(open_chat: Open) -> None:
    async with open_chat(size=(120, 36), config=Config()) as chat:
        chat.client.reply(await chat.send(EGG), "Six minutes.")
        await chat.shows("How do I boil an egg so")
        await chat.until(lambda: len(chat.client.requests) == 2)
        chat.client.emit(Finished("r2", "stop", "Soft boiled egg", (), Metrics()))
        await chat.shows("1 Soft boiled egg")


async def test_a_running_reply_in_another_tab_is_waited_for(open_chat: Open) -> None:
    async with open_chat(config=Config()) as chat:
        first = await chat.send(EGG)
        await chat.press("ctrl+t")
        second = await chat.send("Hello")
        chat.client.reply(first, "Six minutes.")
        await chat.until(lambda: chat.app.workspace.running() == 1)
        assert len(chat.client.requests) == 2
        chat.client.reply(second, "Hi!")
        await chat.until(lambda: len(chat.client.requests) == 3)
        assert chat.client.requests["r3"].priority == -1


async def test_the_settings_can_leave_titles_to_the_user(open_chat: Open) -> None:
    async with open_chat(config=Config(ui=UiConfig(auto_titles=False))) as chat:
        chat.client.reply(await chat.send(EGG), "Six minutes.")
        await chat.until(lambda: not chat.tab.reply)
        assert list(chat.client.requests) == ["r1"]

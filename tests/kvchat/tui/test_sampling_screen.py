"""The sampling of a tab, as a form."""

from __future__ import annotations

from chat_driver import Chat, Open
from textual.widgets import Input

from engine.api import SamplingParams


async def open_form(chat: Chat) -> None:
    chat.app.chat.active_pane.composer.editor.insert("/sampling")
    await chat.press("escape", "enter")
    await chat.shows("Sampling of this tab")


def field(chat: Chat, name: str) -> Input:
    return next(field for field in chat.app.screen.query("Field") if field._label == name).query_one(Input)


async def test_what_is_filled_in_is_used_from_the_next_reply_on_and_the_rest_is_as_before(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        chat.tab.set_sampling(SamplingParams(stop=("END",), top_k=9))
        await open_form(chat)
        assert (field(chat, "top_k").value, field(chat, "temperature").value) == ("9", "")
        assert field(chat, "temperature").placeholder == "0.7"
        field(chat, "temperature").value = "0.2"
        field(chat, "seed").value = "7"
        field(chat, "ignore_eos").value = "True"
        field(chat, "top_k").value = ""
        await chat.press("enter")
        await chat.shows_not("Sampling of this tab")
        sampling = chat.client.requests[await chat.send("Hello")].sampling
        assert sampling == SamplingParams(temperature=0.2, seed=7, ignore_eos=True, stop=("END",))


async def test_a_value_that_cannot_be_is_said_and_nothing_changes(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        before = chat.tab.conversation.sampling
        await open_form(chat)
        for name, value, problem in (
            ("top_p", "2", "top_p must be above 0 and at most 1, not 2.0"),
            ("top_k", "1.5", "top_k must be a whole number, not '1.5'"),
            ("ignore_eos", "maybe", "ignore_eos must be true or false, not 'maybe'"),
            ("seed", "x", "seed must be a whole number, not 'x'"),
        ):
            field(chat, name).value = value
            await chat.press("enter")
            await chat.shows(problem)
            assert chat.app.screen.focused is field(chat, name)
            field(chat, name).value = ""
        await chat.press("escape")
        await chat.shows_not("Sampling of this tab")
        assert chat.tab.conversation.sampling == before


async def test_all_of_the_form_fits_a_terminal_of_24_rows(open_chat: Open) -> None:
    async with open_chat(size=(80, 24)) as chat:
        await open_form(chat)
        await chat.shows("temperature", "0 greedy; higher is more varied", "true: write until max_tokens", "Save")

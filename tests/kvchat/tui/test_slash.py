"""Commands written in the composer, and the list that completes them."""

from __future__ import annotations

import pytest
from chat_driver import Chat, Open

from kvchat.tui.slash import COMMANDS
from kvchat.tui.widgets.completions import Completions


def written(chat: Chat) -> str:
    return chat.app.chat.active_pane.composer.text


async def command(chat: Chat, text: str) -> None:
    """Write a whole line at once and press Enter."""
    chat.app.chat.active_pane.composer.editor.insert(text)
    await chat.press("enter")


async def test_a_slash_lists_the_commands_and_escape_closes_the_list(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("/")
        await chat.shows("/persona NAME", "Start a conversation with a persona")
        await chat.press("escape")
        await chat.shows_not("/persona NAME")
        assert written(chat) == "/"


async def test_tab_completes_a_command_and_then_its_argument(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("/per")
        await chat.press("tab")
        assert written(chat) == "/persona "
        await chat.shows("coder", "editor")
        await chat.type("tu")
        await chat.press("tab", "enter")
        await chat.until(lambda: chat.tab.conversation.persona == "tutor")
        assert written(chat) == ""


async def test_arrows_choose_and_enter_runs_a_command_that_needs_no_more(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("/c")
        await chat.press("down", "up", "up")
        await chat.until(lambda: chat.app.chat.active_pane.composer.query_one(Completions).candidate.text == "/copy")
        await chat.press("enter")
        await chat.shows("there is no reply to copy")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/title", "write /title TEXT"),
        ("/attach", "write /attach PATH"),
        ("/set top_p", "write /set top_p VALUE"),
    ],
)
async def test_enter_behind_a_command_that_needs_more_asks_for_it(open_chat: Open, line: str, problem: str) -> None:
    async with open_chat() as chat:
        await chat.type(line)
        await chat.press("enter")
        await chat.shows(problem)
        assert written(chat) == f"{line} ", "ready for the rest"


async def test_enter_behind_a_command_with_choices_offers_them(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("/persona")
        await chat.press("enter")
        await chat.shows("coder", "editor")
        assert written(chat) == "/persona " and "write /persona" not in chat.text


async def test_escape_closes_the_list_before_it_stops_a_reply(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("one")
        chat.client.accept(request)
        await chat.type("/")
        await chat.shows("/persona NAME")
        await chat.press("escape")
        await chat.shows_not("/persona NAME")
        assert not chat.client.aborted
        await chat.press("escape")
        assert chat.client.aborted == [request]


async def test_sampling_is_set_for_this_tab_and_kept(open_chat: Open) -> None:
    async with open_chat() as chat:
        await command(chat, "/temp 0.2")
        await command(chat, "/set top_k 40")
        await command(chat, "/set seed 7")
        sampling = chat.client.requests[await chat.send("Hello")].sampling
        assert (sampling.temperature, sampling.top_k, sampling.seed) == (0.2, 40, 7)
        await command(chat, "/set seed none")
        await chat.press("ctrl+t")
        assert chat.client.requests[await chat.send("Hello")].sampling.top_k != 40
    async with open_chat() as chat:
        sampling = chat.app.workspace.tabs[0].conversation.sampling
        assert (sampling.temperature, sampling.top_k, sampling.seed) == (0.2, 40, None)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/nonsense", "unknown command /nonsense"),
        ("/usr/bin is what?", "//usr/bin"),
        ("/temp hot", "temperature must be a number, not 'hot'"),
        ("/set top_k 1.5", "top_k must be a whole number, not '1.5'"),
        ("/temp none", "temperature must be a number, not 'none'"),
        ("/temp -1", "temperature must be 0 or more"),
        ("/set colour red", "unknown setting 'colour'"),
        ("/set top_p", "write /set top_p VALUE"),
        ("/title", "write /title TEXT"),
        ("/tag # work", "write /tag NAME"),
        ("/persona pirate king", "unknown persona 'pirate king'"),
        ("/retry", "nothing to try again"),
        ("/quit now", "takes nothing after it"),
        ("/attach no-such-file", "there is no such file"),
        ("/attach ~nobody-of-that-name/x", "there is no such file"),
    ],
)
async def test_what_cannot_be_done_says_so_and_stays_written(open_chat: Open, line: str, problem: str) -> None:
    async with open_chat(size=(160, 30)) as chat:
        chat.app.chat.active_pane.composer.editor.insert(line)
        await chat.pilot.pause()
        chat.app.chat.active_pane.composer.close_completions()
        await chat.press("enter")
        await chat.shows(problem)
        assert written(chat) == line
        assert not chat.client.requests


async def test_a_command_to_stop_stops_whatever_is_open(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("one")
        chat.client.accept(request)
        await chat.type("/stop")
        await chat.shows("/stop  ")
        await chat.press("enter")
        assert chat.client.aborted == [request]


async def test_a_paste_stays_for_the_message_unless_the_command_wants_it(open_chat: Open) -> None:
    paste = "\n".join(f"line {number}" for number in range(50))
    async with open_chat() as chat:
        composer = chat.app.chat.active_pane.composer
        await composer.add_chip(paste)
        await command(chat, "/title Numbers")
        await chat.until(lambda: chat.tab.title == "Numbers")
        assert written(chat) == paste
        await command(chat, "/system ")
        await chat.until(lambda: chat.tab.conversation.system_prompt == paste)
        assert written(chat) == ""
        await command(chat, "/system\nOne line\nand another")
        await chat.until(lambda: chat.tab.conversation.system_prompt == "One line\nand another")


async def test_two_slashes_begin_a_message_with_one(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("//etc/hosts?")
        assert chat.client.requests[request].messages[-1].text == "/etc/hosts?"


async def test_a_system_prompt_is_for_a_conversation_that_has_not_begun(open_chat: Open) -> None:
    async with open_chat(size=(120, 30)) as chat:
        await command(chat, "/system Speak Latin.")
        request = await chat.send("Hello")
        assert chat.client.requests[request].messages[0].text == "Speak Latin."
        await command(chat, "/system Speak Greek.")
        await chat.shows("the conversation has begun")


async def test_clear_starts_over_with_the_same_persona(open_chat: Open) -> None:
    async with open_chat() as chat:
        await command(chat, "/persona coder")
        chat.client.reply(await chat.send("one"), "first")
        await chat.until(lambda: not chat.app.workspace.running())
        old = chat.tab.id
        await command(chat, "/clear")
        await chat.until(lambda: chat.app.workspace.find(old) is None)
        assert chat.tab.conversation.persona == "coder" and not chat.tab.messages


async def test_find_opens_the_history_with_the_words(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Where do albatrosses nest?"), "On islands")
        await chat.until(lambda: not chat.app.workspace.running())
        await command(chat, "/find islands")
        await chat.shows("Open conversation", "On islands", "1 shown")


async def test_the_help_and_the_palette_know_every_command(open_chat: Open) -> None:
    async with open_chat(size=(140, 130)) as chat:
        await command(chat, "/help")
        await chat.shows(*(each.about for each in COMMANDS))
        await chat.press("escape", "ctrl+p")
        await chat.type("/temp")
        await chat.shows("/temp X")
        await chat.press("enter")
        await chat.until(lambda: written(chat) == "/temp ")

"""Personas made, changed, copied and deleted in the application."""

from __future__ import annotations

from chat_driver import Chat, Open
from textual.events import Key
from textual.widgets import Input, TextArea

from kvchat.personas import load_personas
from kvchat.personas.editing import persona_file

SIZE = (120, 48)


async def highlight(chat: Chat, name: str) -> None:
    """Open the list of personas and go to one."""
    await chat.press("ctrl+n")
    await chat.shows("New conversation with")
    names = [persona.name for persona in chat.app.workspace.personas.all]
    steps = names.index(name) - names.index("assistant")
    await chat.press(*["down"] * steps)


async def fill_in(chat: Chat, label: str, text: str) -> None:
    """Write into the field of this label, in place of what is there."""
    field = next(field for field in chat.app.screen.query("Field") if field._label == label)
    field.query_one(Input).value = text


async def test_a_new_persona_is_made_and_used_at_once(open_chat: Open) -> None:
    async with open_chat(size=SIZE) as chat:
        await highlight(chat, "assistant")
        await chat.press("n")
        await chat.shows("New persona", "System prompt")
        await fill_in(chat, "Title", "Sea [Captain]")
        await fill_in(chat, "temperature", "0.9")
        chat.app.screen.query_one(TextArea).text = "You know the sea."
        await chat.press("ctrl+s")
        await chat.shows("New conversation with", "Sea [Captain]", "You know the sea.")
        await chat.press("enter")
        await chat.until(lambda: len(chat.app.workspace.tabs) == 2)
        request = chat.client.requests[await chat.send("Hello")]
        assert request.messages[0].text == "You know the sea."
        assert request.sampling.temperature == 0.9
    assert load_personas().named("sea-captain").title == "Sea [Captain]"


async def test_what_cannot_be_saved_is_said_and_the_form_stays(open_chat: Open) -> None:
    async with open_chat(size=SIZE) as chat:
        await highlight(chat, "assistant")
        await chat.press("n")
        await chat.shows("New persona")
        await chat.press("ctrl+s")
        await chat.shows("it needs a title")
        await fill_in(chat, "Title", "x")
        await chat.press("ctrl+s")
        await chat.shows("it needs a system prompt")
        chat.app.screen.query_one(TextArea).text = "x"
        for text, problem in (
            ("hot", "temperature must be a number, not 'hot'"),
            ("-1", "temperature must be 0 or more, not -1.0"),
            ("nan", "temperature must be finite"),
        ):
            await fill_in(chat, "temperature", text)
            await chat.press("ctrl+s")
            await chat.shows(problem)
        await chat.press("escape")
        await chat.shows("Leave without saving")
        await chat.press("enter")
        await chat.shows_not("Leave without saving")
        assert chat.app.screen.query_one(TextArea).text == "x", "Enter alone loses nothing"
        await chat.press("escape", "y")
        await chat.shows_not("New persona")
    assert not persona_file("x").exists()


async def test_escape_asks_once_before_what_was_typed_is_lost_however_fast_it_comes(open_chat: Open) -> None:
    async with open_chat(size=SIZE) as chat:
        await highlight(chat, "assistant")
        await chat.press("n")
        await chat.shows("New persona")
        await chat.press("escape")
        await chat.shows_not("New persona")
        await chat.press("n")
        await chat.shows("New persona")
        await chat.type("P")
        for _ in range(2):  # in one read of the terminal
            chat.app.post_message(Key("escape", None).set_sender(chat.app))
        await chat.shows("Leave without saving")
        await chat.press("n")
        await chat.shows_not("Leave without saving")
        assert "New persona" in chat.text
        await chat.press("escape")
        await chat.shows("Leave without saving")
        await chat.press("y")
        await chat.shows_not("New persona")


async def test_keys_that_come_in_one_burst_open_one_form(open_chat: Open) -> None:
    async with open_chat(size=SIZE) as chat:
        await highlight(chat, "coder")
        for _ in range(20):
            chat.app.post_message(Key("e", "e").set_sender(chat.app))
        await chat.shows("Edit Coder")
        await chat.pilot.pause()
        assert len(chat.app.screen_stack) == 3


async def test_editing_a_shipped_persona_makes_a_file_of_the_user_and_deleting_that_brings_it_back(
    open_chat: Open,
) -> None:
    async with open_chat(size=SIZE) as chat:
        await highlight(chat, "coder")
        await chat.press("e")
        await chat.shows("Edit Coder")
        chat.app.screen.query_one(TextArea).text = "Write Haskell."
        await chat.press("ctrl+s")
        await chat.shows("New conversation with", "Write Haskell.")
        assert persona_file("coder").exists()
        await chat.press("x")
        await chat.shows("Delete the persona Coder?")
        await chat.press("y")
        await chat.shows("experienced software engineer")
        assert not persona_file("coder").exists()
        await chat.press("x")
        await chat.shows("Delete the persona Coder?")
        await chat.press("y")
        await chat.shows("comes with kvchat")


async def test_a_duplicate_begins_as_a_copy_and_gets_a_name_of_its_own(open_chat: Open) -> None:
    async with open_chat(size=SIZE) as chat:
        await highlight(chat, "coder")
        await chat.press("d")
        await chat.shows("Copy of Coder")
        await chat.press("ctrl+s")
        await chat.shows("Coder (copy)")
        await chat.press("escape")
    copy, original = load_personas().named("coder-copy"), load_personas().named("coder")
    assert (copy.system_prompt, copy.sampling, copy.pin) == (original.system_prompt, original.sampling, original.pin)


async def test_the_persona_of_new_tabs_cannot_be_deleted(open_chat: Open) -> None:
    persona_file("mine").parent.mkdir(parents=True)
    persona_file("mine").write_text('system_prompt = "Mine."')
    async with open_chat(size=SIZE) as chat:
        chat.app.workspace.default_persona = chat.app.workspace.personas.named("mine")
        await chat.press("ctrl+n")
        await chat.shows("Mine.")
        await chat.press("x")
        await chat.shows("Delete the persona mine?")
        await chat.press("y")
        await chat.shows("is the persona of new tabs")
    assert persona_file("mine").exists()


async def test_a_form_in_which_nothing_was_changed_is_left_at_once(open_chat: Open) -> None:
    async with open_chat(size=SIZE) as chat:
        await highlight(chat, "coder")
        await chat.press("e")
        await chat.shows("Edit Coder")
        await chat.press("escape")
        await chat.shows_not("Edit Coder")


async def test_the_form_fits_a_small_terminal(open_chat: Open) -> None:
    async with open_chat(size=(40, 12)) as chat:
        await highlight(chat, "assistant")
        await chat.press("e")
        await chat.shows("Edit Assistant", "Title", "Save")

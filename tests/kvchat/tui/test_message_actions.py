"""What can be done with a message, by keys, mouse, command and palette."""

from __future__ import annotations

import msgspec
from chat_driver import Chat, Open
from textual.widgets import OptionList

from engine.api import Progress
from kvchat.store import Store
from kvchat.tui.widgets.composer import Editor
from kvchat.tui.widgets.message_bar import MessageBar
from kvchat.tui.widgets.user_message import UserMessage

CODE = "First:\n\n```python\nprint(1)\n```\n\nthen\n\n```\nls -l\ncd\n```\n"


async def talk(chat: Chat, *turns: tuple[str, str]) -> None:
    for question, answer in turns:
        chat.client.reply(await chat.send(question), answer)
    await chat.shows("tok/s")


def texts(chat: Chat) -> list[str]:
    return [message.text for message in chat.tab.messages]


def marked(chat: Chat) -> str:
    return next((message.text for message in chat.tab.messages if message.id == chat.app.chat.marked), "")


def focused(chat: Chat) -> type:
    return type(chat.app.focused)


async def test_the_cursor_walks_over_the_messages_and_back_to_the_composer(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"), ("three", "four"))
        await chat.type("draft")
        for key, expected in (("alt+up", "four"), ("up", "three"), ("k", "two"), ("ctrl+up", "one"), ("up", "one")):
            await chat.press(key)
            assert marked(chat) == expected and focused(chat) is MessageBar
        await chat.shows("c Copy", "e Edit", "f Fork", "d Delete", "Esc Back")
        for _ in range(4):
            await chat.press("down")
        await chat.until(lambda: focused(chat) is Editor and not marked(chat))
        await chat.shows_not("f Fork")
        assert chat.app.chat.active_pane.composer.text == "draft"


async def test_a_click_on_a_message_goes_to_it_and_takes_the_keys_along(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"))
        await chat.type("draft")
        await chat.pilot.click(UserMessage)
        await chat.until(lambda: marked(chat) == "one")
        await chat.shows("c Copy", "Esc Back")
        await chat.press("c")
        assert chat.app.clipboard == "one"
        await chat.pilot.click("MarkdownParagraph", offset=(1, 0))
        await chat.until(lambda: marked(chat) == "two")
        await chat.press("c")
        assert chat.app.clipboard == "two"
        await chat.press("escape")
        await chat.until(lambda: not marked(chat) and focused(chat) is Editor)
        await chat.type(" more")
        assert chat.app.chat.active_pane.composer.text == "draft more"


async def test_a_click_into_the_text_takes_the_keys_back(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"))
        await chat.pilot.click(UserMessage)
        await chat.until(lambda: focused(chat) is MessageBar)
        await chat.pilot.click(Editor)
        await chat.type("c")
        assert focused(chat) is Editor and chat.app.chat.active_pane.composer.text == "c"


async def test_the_names_in_the_line_can_be_clicked(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"))
        await chat.pilot.click(UserMessage)
        await chat.shows("Copy")
        line = next(line for line in chat.text.splitlines() if "Copy" in line)
        await chat.pilot.click(MessageBar, offset=(line.index("Copy") - 2, 0))
        await chat.shows("Message copied")
        assert chat.app.clipboard == "one" and focused(chat) is MessageBar


async def test_a_message_is_copied(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "**two**"))
        await chat.press("alt+up", "c")
        assert chat.app.clipboard == "**two**"


async def test_of_several_code_blocks_one_is_chosen(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", CODE))
        await chat.press("alt+k")
        await chat.shows("1 python · 1 line · print(1)", "2 2 lines · ls -l")
        assert chat.app.screen.query_one(OptionList).highlighted == 1
        await chat.press("enter")
        await chat.shows("Code copied")
        assert chat.app.clipboard == "ls -l\ncd"
        await chat.press("alt+up", "x", "1")
        await chat.until(lambda: chat.app.clipboard == "print(1)")


async def test_the_only_code_block_is_copied_at_once(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "```sh\nls\n```"))
        await chat.type("/code")
        await chat.press("enter")
        await chat.until(lambda: chat.app.clipboard == "ls")


async def test_an_edited_message_is_sent_as_a_branch_and_the_draft_comes_back(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"), ("three", "four"))
        await chat.type("draft")
        await chat.press("alt+up", "k", "k", "k", "e")
        await chat.shows("Editing", "one")
        await chat.type(" more")
        await chat.press("enter")
        await chat.until(lambda: len(chat.client.requests) == 3)
        chat.client.reply("r3", "five")
        await chat.shows("one more", "branch 2/2", "five", "draft")
        await chat.shows_not("Editing")
        assert texts(chat) == ["one more", "five"]
        await chat.until(lambda: chat.tab.draft == "draft")


async def test_esc_gives_an_edit_up_and_a_running_reply_goes_on(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"))
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
        await talk(chat, ("//etc is full", "So?"))
        await chat.press("alt+e")
        await chat.shows("//etc is full")
        await chat.press("enter")
        await chat.until(lambda: "r2" in chat.client.requests)
        assert chat.client.requests["r2"].messages[-1].text == "/etc is full"


async def test_branches_show_at_every_message_and_are_walked_there(open_chat: Open) -> None:
    async with open_chat(size=(80, 40)) as chat:
        await talk(chat, ("one", "two"))
        await chat.press("alt+r")
        chat.client.reply("r2", "other")
        await talk(chat, ("three", "four"))
        await chat.shows("branch 2/2 · ttft")
        await chat.press("alt+up", "k", "k")
        await chat.shows("◂ 2/2 ▸")
        await chat.press("left")
        await chat.shows("branch 1/2", "◂ 1/2 ▸")
        assert texts(chat) == ["one", "two"] and marked(chat) == "two" and focused(chat) is MessageBar
        await chat.press("l")
        await chat.shows("three", "four")
        assert marked(chat) == "other"


async def test_an_older_reply_is_regenerated_from_the_cursor(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"), ("three", "four"))
        await chat.press("alt+up", "k", "k", "r")
        await chat.until(lambda: "r3" in chat.client.requests)
        assert [each.text for each in chat.client.requests["r3"].messages[1:]] == ["one"]
        await chat.until(lambda: focused(chat) is Editor)


async def test_a_fork_says_what_its_first_request_showed(open_chat: Open) -> None:
    async with open_chat(size=(100, 40)) as chat:
        await talk(chat, ("one", "two three"), ("four", "five"))
        source = chat.tab
        ids = [message.token_ids for message in source.messages[:2]]
        await chat.press("alt+up", "k", "k", "f")
        tokens = sum(map(len, ids)) - 1  # the token sampled last was not fed yet
        await chat.shows("Fork of one", f"forked here: {tokens} tokens go along")
        assert chat.tab is not source and texts(chat) == ["one", "two three"]
        assert [message.token_ids for message in chat.tab.messages] == ids
        request = await chat.send("other")
        chat.client.accept(request)
        metrics = msgspec.structs.replace(source.metrics, prompt_tokens=tokens + 2, cached_tokens=tokens)
        chat.client.emit(Progress(request, "prefill", tokens, metrics))
        await chat.shows(f"forked here: {tokens} tokens shared, 0 recomputed")
        chat.client.say(request, "yes")
        chat.client.finish(request)
        await chat.shows("yes", f"{tokens} tokens shared, 0 recomputed")
        assert [message.text for message in source.messages] == ["one", "two three", "four", "five"]


async def test_what_was_evicted_since_counts_as_recomputed(open_chat: Open) -> None:
    async with open_chat(size=(100, 40)) as chat:
        await talk(chat, ("one two three", "four"))
        await chat.type("/fork")
        await chat.press("enter")
        await chat.shows("tokens go along")
        tokens = len(chat.tab.messages[0].token_ids)
        request = await chat.send("other")
        chat.client.accept(request)
        metrics = msgspec.structs.replace(chat.tab.messages[1].metrics, prompt_tokens=tokens + 2, cached_tokens=64)
        chat.client.emit(Progress(request, "prefill", 64, metrics))
        await chat.shows(f"64 tokens shared, {tokens - 64}")


async def test_a_deleted_message_comes_back(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"), ("three", "four"))
        await chat.press("alt+up", "k", "d")
        await chat.shows("Deleted", "u Undo")
        assert texts(chat) == ["one", "two"] and marked(chat) == "two"
        await chat.press("u")
        await chat.shows("three", "four")
        await chat.press("d", "ctrl+z")
        await chat.until(lambda: len(texts(chat)) == 4)
        await chat.press("d", "d")
        await chat.until(lambda: texts(chat) == [])
        await chat.press("alt+z", "alt+z")
        await chat.until(lambda: texts(chat) == ["one", "two", "three", "four"])


async def test_a_conversation_of_which_all_is_deleted_comes_back_even_from_a_closed_tab(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"))
        await chat.press("alt+up", "up", "d")
        await chat.shows("Everything stays on this machine")
        await chat.until(lambda: focused(chat) is Editor)
        await chat.press("ctrl+w")
        await chat.press("alt+t")
        await chat.until(lambda: chat.tab.can_undelete)
        await chat.type("/undelete")
        await chat.press("enter")
        await chat.shows("one", "two")


async def test_a_stopped_reply_goes_on(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Tell me")
        chat.client.accept(request)
        chat.client.say(request, "Once upon")
        await chat.press("escape")
        chat.client.finish(request, "aborted")
        await chat.shows("stopped · Alt+C continues · F5 tries again")
        await chat.press("alt+up")
        await chat.shows("g Go on")
        await chat.press("up")
        await chat.shows_not("g Go on")
        await chat.press("escape", "alt+c")
        await chat.until(lambda: "r2" in chat.client.requests)
        await chat.shows("Once upon", "waiting for the engine")
        chat.client.accept("r2")
        chat.client.say("r2", " a time")
        chat.client.finish("r2")
        await chat.shows("Once upon a time", "4 tokens")
        await chat.shows_not("Alt+C")
        await chat.type("/continue")
        await chat.press("enter")
        await chat.shows("nothing to continue")


async def test_only_the_last_message_offers_to_go_on(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Tell me")
        chat.client.accept(request)
        chat.client.say(request, "Once upon")
        await chat.press("escape")
        chat.client.finish(request, "aborted")
        await chat.shows("stopped · Alt+C continues · F5 tries again")
        chat.client.reply(await chat.send("Never mind"), "Fine.")
        await chat.shows("Fine.", "stopped")
        await chat.shows_not("Alt+C continues")
        await chat.shows_not("tries again")


async def test_waiting_messages_are_shown_edited_and_cancelled(open_chat: Open) -> None:
    async with open_chat(size=(80, 40)) as chat:
        request = await chat.send("one")
        chat.client.accept(request)
        for text in ("first waits", "second waits"):
            await chat.type(text)
            await chat.press("enter")
        await chat.shows("first waits", "second waits", "queued · sent after this reply · Up takes it back")
        await chat.pilot.click("UserMessage.-queued")
        await chat.until(lambda: chat.tab.queued == ["second waits"])
        await chat.type(" longer")
        await chat.press("enter")
        await chat.until(lambda: chat.tab.queued == ["second waits", "first waits longer"])
        await chat.press("up", "ctrl+u")
        await chat.until(lambda: chat.tab.queued == ["second waits"])
        chat.client.say(request, "two")
        chat.client.finish(request)
        await chat.until(lambda: chat.tab.sent[-1:] == ["second waits"] and not chat.tab.queued)


async def test_the_palette_has_it_all(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"))
        await chat.press("ctrl+p")
        await chat.type("message")
        await chat.shows("Edit message", "Delete message", "Copy message", "Message above")
        await chat.press("down", "enter")
        await chat.until(lambda: chat.app.screen is chat.app.chat)


async def test_the_message_that_was_gone_to_stays_in_view_while_a_reply_streams(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("first question", "two"))
        request = await chat.send("more")
        chat.client.accept(request)
        chat.client.say(request, "\n\n".join(f"Paragraph {number}." for number in range(40)))
        await chat.shows("Paragraph 39")
        await chat.press("alt+up", "k", "k", "k")
        await chat.shows("first question")
        chat.client.say(request, "\n\nThe end.")
        await chat.until(lambda: any("The end." in str(each.render()) for each in chat.app.query("MarkdownParagraph")))
        await chat.shows("first question", "more below")


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
        await talk(chat, ("one", "two"))
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
        await talk(chat, ("one", "two"))
        await chat.press("alt+e")
        await chat.type(" more")
        await chat.until(lambda: store.open_tabs()[0].draft == "one more")
        await chat.press("escape")
        await chat.until(lambda: store.open_tabs()[0].draft == "")


async def test_another_edit_leaves_the_text_of_the_first_in_the_draft(open_chat: Open) -> None:
    async with open_chat() as chat:
        await talk(chat, ("one", "two"), ("three", "four"))
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
        await talk(chat, ("one", "two"))
        await chat.press("alt+e")
        await chat.type(" more")
        await chat.press("alt+up", "r")
        await chat.until(lambda: len(chat.client.requests) == 2)
        assert chat.app.chat.active_pane.composer.text == "one more" and "Editing" in chat.text

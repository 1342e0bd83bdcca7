"""What can be done with a message, by keys, mouse, command and palette."""

from __future__ import annotations

import msgspec
from chat_driver import Chat, Open
from textual.widgets import OptionList

from engine.api import Progress
from kvchat.tui.widgets.chat_pane import ChatPane
from kvchat.tui.widgets.composer import Editor
from kvchat.tui.widgets.message_bar import MessageBar
from kvchat.tui.widgets.user_message import UserMessage

CODE = "First:\n\n```python\nprint(1)\n```\n\nthen\n\n```\nls -l\ncd\n```\n"


def marked(chat: Chat) -> str:
    return next((message.text for message in chat.tab.messages if message.id == chat.app.chat.marked), "")


def focused(chat: Chat) -> type:
    return type(chat.app.focused)


async def test_the_cursor_walks_over_the_messages_and_back_to_the_composer(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"), ("three", "four"))
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
        await chat.talk(("one", "two"))
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
        await chat.talk(("one", "two"))
        await chat.pilot.click(UserMessage)
        await chat.until(lambda: focused(chat) is MessageBar)
        await chat.pilot.click(Editor)
        await chat.type("c")
        assert focused(chat) is Editor and chat.app.chat.active_pane.composer.text == "c"


async def test_the_names_in_the_line_can_be_clicked(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"))
        await chat.pilot.click(UserMessage)
        await chat.shows("Copy")
        line = next(line for line in chat.text.splitlines() if "Copy" in line)
        await chat.pilot.click(MessageBar, offset=(line.index("Copy") - 2, 0))
        await chat.shows("Message copied")
        assert chat.app.clipboard == "one" and focused(chat) is MessageBar


async def test_a_message_is_copied(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "**two**"))
        await chat.press("alt+up", "c")
        assert chat.app.clipboard == "**two**"


async def test_of_several_code_blocks_one_is_chosen(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", CODE))
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
        await chat.talk(("one", "```sh\nls\n```"))
        await chat.type("/code")
        await chat.press("enter")
        await chat.until(lambda: chat.app.clipboard == "ls")


async def test_branches_show_at_every_message_and_are_walked_there(open_chat: Open) -> None:
    async with open_chat(size=(80, 40)) as chat:
        await chat.talk(("one", "two"))
        await chat.press("alt+r")
        chat.client.reply("r2", "other")
        await chat.talk(("three", "four"))
        await chat.shows("branch 2/2 · ttft")
        await chat.press("alt+up", "k", "k")
        await chat.shows("◂ 2/2 ▸")
        await chat.press("left")
        await chat.shows("branch 1/2", "◂ 1/2 ▸")
        assert chat.texts == ["one", "two"] and marked(chat) == "two" and focused(chat) is MessageBar
        await chat.press("l")
        await chat.shows("three", "four")
        assert marked(chat) == "other"


async def test_an_older_reply_is_regenerated_from_the_cursor(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"), ("three", "four"))
        await chat.press("alt+up", "k", "k", "r")
        await chat.until(lambda: "r3" in chat.client.requests)
        assert [each.text for each in chat.client.requests["r3"].messages[1:]] == ["one"]
        await chat.until(lambda: focused(chat) is Editor)


async def test_a_fork_says_what_its_first_request_showed(open_chat: Open) -> None:
    async with open_chat(size=(100, 40)) as chat:
        await chat.talk(("one", "two three"), ("four", "five"))
        source = chat.tab
        ids = [message.token_ids for message in source.messages[:2]]
        await chat.press("alt+up", "k", "k", "f")
        tokens = sum(map(len, ids)) - 1  # the token sampled last was not fed yet
        await chat.shows("Fork of one", f"forked here: {tokens} tokens go along")
        assert chat.tab is not source and chat.texts == ["one", "two three"]
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
        await chat.talk(("one two three", "four"))
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
        await chat.talk(("one", "two"), ("three", "four"))
        await chat.press("alt+up", "k", "d")
        await chat.shows("Deleted", "u Undo")
        assert chat.texts == ["one", "two"] and marked(chat) == "two"
        await chat.press("u")
        await chat.shows("three", "four")
        await chat.press("d", "ctrl+z")
        await chat.until(lambda: len(chat.texts) == 4)
        await chat.press("d", "d")
        await chat.until(lambda: chat.texts == [])
        await chat.press("alt+z", "alt+z")
        await chat.until(lambda: chat.texts == ["one", "two", "three", "four"])


async def test_a_conversation_of_which_all_is_deleted_comes_back_even_from_a_closed_tab(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "two"))
        await chat.press("alt+up", "up", "d")
        await chat.shows("Everything stays on this machine")
        await chat.until(lambda: focused(chat) is Editor)
        await chat.press("ctrl+w")
        await chat.press("alt+t")
        await chat.until(lambda: chat.tab.can_undelete)
        await chat.type("/undelete")
        await chat.press("enter")
        await chat.shows("one", "two")


async def stop_a_reply(chat: Chat) -> None:
    request = await chat.send("Tell me")
    chat.client.accept(request)
    chat.client.say(request, "Once upon")
    await chat.press("escape")
    chat.client.finish(request, "aborted")
    await chat.shows("stopped · Alt+C continues · F5 tries again")


async def test_a_stopped_reply_goes_on(open_chat: Open) -> None:
    async with open_chat() as chat:
        await stop_a_reply(chat)
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
        await stop_a_reply(chat)
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
        await chat.talk(("one", "two"))
        await chat.press("ctrl+p")
        await chat.type("message")
        await chat.shows("Edit message", "Delete message", "Copy message", "Message above")
        await chat.press("down", "enter")
        await chat.until(lambda: chat.app.screen is chat.app.chat)


async def test_the_message_that_was_gone_to_stays_in_view_while_a_reply_streams(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("first question", "two"))
        request = await chat.send("more")
        chat.client.accept(request)
        chat.client.say(request, "\n\n".join(f"Paragraph {number}." for number in range(40)))
        await chat.shows("Paragraph 39")
        await chat.press("alt+up", "k", "k", "k")
        await chat.shows("first question")
        chat.client.say(request, "\n\nThe end.")
        await chat.until(lambda: any("The end." in str(each.render()) for each in chat.app.query("MarkdownParagraph")))
        await chat.shows("first question", "more below")


async def test_in_a_tab_that_is_being_made_no_message_is_marked(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.talk(("one", "first"))
        made = ChatPane(chat.tab, None, lambda before: (), chat.app.chat.run_command)
        await made.mark(chat.tab.messages[0].id)
        assert made.transcript.marked is None

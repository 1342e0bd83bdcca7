"""Messages on the screen, and replies while they stream."""

from __future__ import annotations

from chat_driver import Chat, Open

from engine.api import Divergence

LONG = "\n\n".join(f"Paragraph {number} of a long reply." for number in range(60))


async def test_a_reply_streams_as_markdown(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "## Title\n\nSome **bold")
        await chat.shows("Title", "Some **bold")
        chat.client.say(request, "** text\n\n```python\nprint(1)\n```\n")
        chat.client.finish(request)
        await chat.shows("Some bold text", "print(1)")
        assert chat.app.query("MarkdownH2") and chat.app.query("ReplyFence")


async def test_a_reply_says_what_it_is_doing_and_then_what_it_cost(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        await chat.shows("waiting for the engine")
        chat.client.accept(request)
        chat.client.queue(request, "12 blocks needed, 3 free")
        await chat.shows("queued: 12 blocks needed, 3 free")
        chat.client.prefill(request, 1024)
        await chat.shows("reading 1,024 / ")
        chat.client.say(request, "Hi")
        await chat.shows("1 token")
        chat.client.finish(request)
        await chat.shows("ttft 182 ms · tpot 24.1 ms · 41.5 tok/s · 1 token · 93 % cached")


async def test_a_reply_says_how_much_of_the_history_was_read_again(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("one two"), "three")
        request = await chat.send("four")
        chat.client.accept(request, Divergence(chat.tab.context_tokens - 1, "three", " three", "trimmed"))
        chat.client.say(request, "five")
        await chat.shows("1 token · 1 token of history read again")


async def test_a_message_that_can_never_be_answered_goes_back_to_the_composer(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Hello"), "Hi there")
        request = await chat.send("far too [long]")
        await chat.shows("waiting for the engine")
        await chat.type("typed")
        chat.client.refuse(request, "the prompt has [9,000] tokens", for_good=True)
        await chat.shows("not sent: the prompt has [9,000] tokens", "Hi there")
        await chat.shows_not("waiting for the engine")
        editor = chat.app.chat.active_pane.composer.editor
        await chat.until(lambda: editor.text == "far too [long]\n\ntyped")
        await chat.shows_not("F5")
        await chat.until(lambda: len(chat.app.query("UserMessage")) == 1)


async def test_after_a_refused_first_message_the_conversation_is_a_new_one(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("far too long")
        await chat.press("ctrl+t")
        chat.client.refuse(request, "the prompt has 9,000 tokens", for_good=True)
        await chat.shows("New chat !")
        await chat.press("alt+1")
        await chat.shows("Everything stays on this machine", "far too long")
        chat.client.reply(await chat.send(" no more"), "Hi")
        await chat.shows("1 far too long no more", "Hi")


async def test_brackets_and_html_in_a_reply_are_text(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Use [bold]x[/bold]"), "[red]a[/red] b[0] [/] <b>c</b>\n\n<div>\nd\n</div>")
        await chat.shows("Use [bold]x[/bold]", "[red]a[/red] b[0] [/] <b>c</b>", "<div>")


async def test_escape_sequences_in_a_reply_are_shown_and_not_obeyed(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "a\x1b[31mred\x1b]0;title\x07 \x9b2J")
        await chat.shows("a␛[31mred␛]0;title␇ \ufffd2J")
        chat.client.finish(request)
        await chat.shows("tok/s")
        assert "\x1b" not in chat.text and "\x9b" not in chat.text


async def test_lines_of_verse_stay_lines(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Poem"), "Roses are red\nViolets are blue")
        await chat.shows("Roses are red ", "Violets are blue ")
        assert "red Violets" not in chat.text


async def test_long_lines_of_code_go_on_in_the_next_row(open_chat: Open) -> None:
    async with open_chat(size=(60, 24)) as chat:
        code = "total = first_argument + second_argument + third_argument  # the_end"
        chat.client.reply(
            await chat.send("Code"), f"```python\n{code}\n```\n\n- in a list\n\n  ```\n  {code} too\n  ```"
        )
        await chat.shows("the_end too")
        assert chat.text.count("the_end") == 2


async def test_the_end_stays_in_view_while_a_reply_streams(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, LONG)
        await chat.shows("Paragraph 59")
        chat.client.say(request, "\n\nThe end.")
        await chat.shows("The end.")
        chat.client.finish(request)
        await chat.shows("The end.", "tok/s")


async def test_the_view_stays_where_the_user_scrolled_to(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, LONG)
        await chat.shows("Paragraph 59")
        await chat.press("ctrl+home")
        await chat.shows("Paragraph 1 ", "more below")
        before = reading(chat)
        chat.client.say(request, "\n\nThe end.")
        chat.client.finish(request)
        await chat.until(lambda: not chat.tab.reply and drawn(chat, "The end."))
        await chat.pilot.pause()
        assert reading(chat) == before
        await chat.press("ctrl+end")
        await chat.shows("The end.")
        await chat.shows_not("more below")


async def test_scrolling_back_to_the_end_follows_again(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, LONG)
        await chat.shows("Paragraph 59")
        await chat.press("pageup")
        await chat.shows("more below")
        await chat.press("pagedown", "pagedown")
        chat.client.say(request, "\n\nThe end.")
        await chat.shows("The end.")


async def test_a_short_conversation_begins_at_the_top(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Hello"), "Hi")
        await chat.shows("tok/s")
        assert "Hello" in "\n".join(chat.text.splitlines()[1:4])


async def test_resizing_to_a_tiny_terminal_while_streaming(open_chat: Open) -> None:
    async with open_chat(size=(120, 36)) as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, LONG)
        await chat.shows("Paragraph 59", "This tab")
        await chat.pilot.resize_terminal(40, 10)
        await chat.shows_not("This tab")
        chat.client.say(request, "\n\nThe end.")
        await chat.shows("The end.")
        await chat.type("next")
        await chat.shows("next")
        chat.client.finish(request)
        await chat.press("enter")
        await chat.until(lambda: len(chat.client.requests) == 2)


async def test_a_long_message_is_folded_until_it_is_clicked(open_chat: Open) -> None:
    async with open_chat(size=(80, 60)) as chat:
        chat.client.reply(await chat.send("\n".join(f"line {number}" for number in range(30))), "Long.")
        await chat.shows("line 11", "18 more lines")
        assert "line 12" not in chat.text
        await chat.pilot.click("UserMessage")
        await chat.shows("line 29")
        await chat.shows_not("more lines")


async def test_a_link_opens_only_after_a_question(open_chat: Open) -> None:
    async with open_chat() as chat:
        opened: list[str] = []
        chat.app.open_url = lambda url, new_tab=True: opened.append(url)  # type: ignore[method-assign]
        chat.client.reply(await chat.send("Link"), "[here](https://example.com/x)")
        await chat.shows("tok/s")
        await chat.pilot.click("MarkdownParagraph", offset=(1, 0))
        await chat.shows("Open this link", "https://example.com/x")
        await chat.press("escape")
        await chat.shows_not("Open this link")
        assert not opened
        await chat.pilot.click("MarkdownParagraph", offset=(1, 0))
        await chat.shows("Open this link")
        await chat.press("y")
        await chat.until(lambda: opened == ["https://example.com/x"])


async def test_a_link_that_is_no_web_address_is_refused(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Link"), "[here](../secret)")
        await chat.shows("tok/s")
        await chat.pilot.click("MarkdownParagraph", offset=(1, 0))
        await chat.shows("not a web address")


async def test_the_last_reply_can_be_copied(open_chat: Open) -> None:
    async with open_chat() as chat:
        chat.client.reply(await chat.send("Hello"), "**Hi** there")
        await chat.press("f6")
        await chat.shows("Reply copied")
        assert chat.app.clipboard == "**Hi** there"


def reading(chat: Chat) -> list[str]:
    """The upper lines of the transcript, without the panel."""
    return [line[:76] for line in chat.text.splitlines()[1:20]]


def drawn(chat: Chat, text: str) -> bool:
    """Whether the transcript holds `text`, in view or not."""
    return any(text in str(widget.render()) for widget in chat.app.query("MarkdownParagraph"))

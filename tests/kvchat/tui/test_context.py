"""What sending costs, how full the context is, and what can be done when it is full."""

from __future__ import annotations

import msgspec
import pytest
from chat_driver import Chat, Open
from scripted_client import MODEL, metrics, stats

from engine.api import EngineState, Finished
from kvchat.store import Store
from kvchat.tui.context import summary_request
from kvchat.tui.estimate import estimated_tokens, sending_cost


async def small_context(chat: Chat, tokens: int) -> None:
    model = msgspec.structs.replace(MODEL, context_length=tokens)
    chat.client.emit(EngineState("ready", model=model), stats())
    await chat.pilot.pause()


async def answered(chat: Chat, text: str, reply: str) -> None:
    chat.client.reply(await chat.send(text), reply)
    await chat.until(lambda: not chat.tab.reply)


@pytest.mark.parametrize(
    ("new", "cached", "rate", "said"),
    [
        (412, 6180, 460.0, "about 412 new + 6,180 cached, about 0.9 s to first token"),
        (412, 0, 4600.0, "about 412 new, about 0.1 s to first token"),
        (412, 6180, 0.0, "about 412 new + 6,180 cached tokens"),
    ],
)
def test_the_cost_of_sending_in_words(new: int, cached: int, rate: float, said: str) -> None:
    assert sending_cost(new, cached, rate) == said


def test_every_text_is_some_tokens() -> None:
    assert estimated_tokens("a") == 1
    assert estimated_tokens("four" * 100) == 100
    assert estimated_tokens("漢字") > estimated_tokens("ab")


async def test_the_draft_says_what_sending_it_will_cost(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        await answered(chat, "one two three", "four five six")
        cached = chat.tab.context_tokens
        await chat.type("a draft of some words")
        await chat.shows(f"about 6 new + {cached} cached tokens")
        chat.client.emit(msgspec.structs.replace(stats(), prefill_tokens_per_s=3.0))  # most of that time it was idle
        await chat.press("!")
        await chat.shows(f"about 6 new + {cached} cached tokens")


async def test_the_time_to_the_first_token_is_told_by_what_earlier_prompts_took(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        request = await chat.send("one two three")
        chat.client.accept(request)
        chat.client.say(request, "four five six")
        took = msgspec.structs.replace(metrics(3), prompt_tokens=900, cached_tokens=300, queue_s=5.0, ttft_s=205.0)
        chat.client.emit(Finished(request, "stop", "four five six", (1, 2, 3), took))
        await chat.type("a draft of some words")
        await chat.shows(f"about 6 new + {chat.tab.context_tokens} cached, about 2.0 s to first token")


async def test_a_new_engine_has_cached_nothing(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        await answered(chat, "one two three", "four five six")
        history = chat.tab.context_tokens
        chat.client.die()
        chat.client.ready()
        await chat.type("a draft of some words")
        await chat.shows(f"about {history + 6} new tokens · context")
        await chat.press("ctrl+u")
        await answered(chat, "seven", "eight")
        await chat.type("a draft of some words")
        await chat.shows(f"about 6 new + {chat.tab.context_tokens} cached")
        await chat.press("ctrl+q")
    async with open_chat(size=(100, 30)) as chat:
        await chat.shows(f"about {chat.tab.context_tokens + 6} new tokens")


async def test_a_new_tab_finds_the_system_prompt_that_another_began_with_in_the_cache(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        prompt = estimated_tokens(chat.tab.conversation.system_prompt)
        assert prompt > 0
        await chat.type("a draft of some words")
        await chat.shows(f"about {prompt + 6} new tokens")
        await chat.press("ctrl+u")
        await answered(chat, "one two three", "four five six")
        await chat.press("ctrl+t")
        await chat.type("a draft of some words")
        await chat.shows(f"about 6 new + {prompt} cached")


async def test_an_edit_finds_only_what_goes_before_it_in_the_cache(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        await answered(chat, "one two three", "four five six")
        history = chat.tab.context_tokens
        await answered(chat, "seven", "eight nine")
        await chat.press("alt+e")
        await chat.shows("Editing", f"about 2 new + {history} cached")


async def test_a_fork_finds_in_the_cache_what_it_shares(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        await answered(chat, "one two three", "four five six")
        await chat.app.chat.action_fork()
        await chat.until(lambda: len(chat.app.workspace.tabs) == 2)
        await chat.type("a draft of some words")
        await chat.shows(f"about 6 new + {chat.tab.context_tokens} cached")


async def test_a_message_that_never_fits_is_told_so_before_and_after_it_is_sent(open_chat: Open) -> None:
    async with open_chat(size=(120, 30)) as chat:
        await answered(chat, "one", "two")
        await small_context(chat, 300)
        await chat.type("Why?")
        await chat.paste("line of a log\n" * 200)
        await chat.shows("too long: context 259 %", "pasted · 200 lines")
        requests = len(chat.client.requests)
        await chat.press("enter")
        await chat.until(lambda: len(chat.client.requests) > requests)
        chat.client.refuse("r2", "the prompt has 800 tokens and the context holds 300", too_long=True)
        await chat.shows("pasted · 200 lines")
        (said,) = [each.message for each in chat.app._notifications if each.severity == "error"]
        assert said == "not sent: the message alone has about 702 tokens, and the context holds 300: shorten it"
        await chat.shows_not("The context is full")
        assert chat.app.chat.active_pane.composer.editor.text == "Why?"


async def test_a_nearly_full_context_warns_once(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        await answered(chat, "one", "two " * 40)
        full = chat.tab.context_tokens
        await small_context(chat, full + 5)
        await chat.shows("full: 5 tokens left")
        assert f"context {full * 100 / (full + 5):.0f} %" in str(chat.app.chat.active_pane.composer.border_subtitle)
        assert len(chat.app._notifications) == 1
        await chat.type("more")
        assert len(chat.app._notifications) == 1


async def test_a_full_context_can_be_summarised_into_a_new_tab(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        await answered(chat, "Remember 42", "I will")
        chat.tab.rename("Numbers")
        request = await chat.send("A long one")
        chat.client.accept(request)
        chat.client.say(request, "cut here")
        chat.client.finish(request, "context_full")
        await chat.shows("The context is full", "Summarise it, and go on in a new tab")
        await chat.press("enter")
        await chat.until(lambda: len(chat.client.requests) == 3)
        assert chat.tab.title == "Numbers (continued)"
        messages = chat.client.requests["r3"].messages
        assert messages[0].role == "system"
        assert "User: Remember 42\n\nAssistant: I will" in messages[-1].text
        assert chat.tab.messages[0].text == messages[-1].text, "the request is an ordinary, visible message"


async def test_of_a_paste_that_filled_the_context_the_middle_is_not_summarised(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        await small_context(chat, 1000)
        await chat.type("Explain")
        await chat.paste("first\n" + "line of a log\n" * 200 + "last")
        await chat.press("enter")
        await chat.until(lambda: chat.client.requests)
        chat.client.accept("r1")
        chat.client.say("r1", "It logs. " * 100)
        chat.client.finish("r1", "context_full")
        await chat.shows("The context is full")
        await chat.press("enter")
        await chat.until(lambda: len(chat.client.requests) == 2)
        system, asked = (each.text for each in chat.client.requests["r2"].messages)
        assert "User: Explain" in asked and "first\nline" in asked and "line of a log\nlast" in asked
        assert "characters left out …]" in asked and asked.endswith("It logs. " * 100), "only the longest is cut"
        assert 400 < estimated_tokens(system + asked) < 600


@pytest.mark.parametrize("text", ["word " * 4000, "7" * 3000, "漢字" * 2000, "🙂" * 3000])
def test_what_is_to_be_summarised_fits_whatever_it_consists_of(store: Store, text: str) -> None:
    conversation = store.create_conversation()
    ids = range(len(text) if text.isdigit() else 1)  # some tokenizers take every digit for one token
    asked = store.append_message(conversation.id, None, "user", text, token_ids=ids)
    store.append_message(conversation.id, asked.id, "assistant", text, token_ids=ids)
    request = summary_request(store.path(conversation.id), 1000)
    cut = len(request.encode()) / len(text.encode())
    tokens = cut * max(len(ids), estimated_tokens(text))
    assert request.count("characters left out") == 2 and 400 < tokens < 800


async def test_a_refused_message_goes_on_in_a_new_tab_with_the_newest_turns(open_chat: Open) -> None:
    async with open_chat(size=(100, 30)) as chat:
        for number in range(3):
            await answered(chat, f"question {number} " + "word " * 40, "answer " * 40)
        await small_context(chat, 300)
        request = await chat.send("One more")
        chat.client.refuse(request, "the prompt has 400 tokens and the context holds 300", too_long=True)
        await chat.shows("The context is full")
        await chat.press("down", "enter")
        await chat.shows("4 older messages are not read any more")
        assert [each.text[:10] for each in chat.tab.messages if each.role == "user"] == ["question 2"]
        await chat.press("enter")
        await chat.until(lambda: len(chat.client.requests) == 5)
        texts = [each.text for each in chat.client.requests["r5"].messages]
        assert texts[-1] == "One more" and len(texts) == 4
        assert chat.app.workspace.tabs[0].draft == ""


async def test_stopping_at_a_full_context_changes_nothing(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "cut")
        chat.client.finish(request, "context_full")
        await chat.shows("The context is full")
        await chat.press("escape")
        await chat.shows_not("The context is full")
        assert len(chat.app.workspace.tabs) == 1


async def test_a_hidden_tab_tells_when_its_reply_is_here(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("Slow question")
        await chat.press("ctrl+t")
        chat.client.reply(request, "done")
        await chat.shows("the reply is here")
        assert len(chat.app._notifications) == 1

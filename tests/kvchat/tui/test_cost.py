"""Why was this slow: the bar, the sentence about the largest part, and the cause of a missed prefix."""

from __future__ import annotations

import msgspec
import pytest
from chat_driver import Chat, Open
from scripted_client import metrics

from engine.api import Divergence, Finished, Metrics, Progress
from kvchat.store import Store, StoredMessage
from kvchat.tui.cost import cause, parts, shares, verdict
from kvchat.tui.widgets.foot import Foot

DIVERGENCE = Divergence(
    4, "<think>\n", "So", "the chat template writes message 2 (assistant) differently from what was fed"
)
SPENT = Metrics(
    queue_s=1.0,
    ttft_s=4.0,
    prefill_s=3.0,
    decode_s=2.0,
    preempted_s=4.0,
    e2e_s=10.0,
    tpot_s=0.1,
    tokens_per_s=10.0,
    prompt_tokens=600,
    cached_tokens=400,
    completion_tokens=20,
    preemptions=2,
)


def test_the_parts_are_all_of_the_time_and_the_cache_takes_none() -> None:
    assert sum(part.seconds or 0 for part in parts(SPENT)) == SPENT.e2e_s
    about = {part.name: (part.seconds, part.about) for part in parts(SPENT)}
    assert about["cached"] == (None, "400 tokens reused, no time")
    assert about["prefill"] == (3.0, "200 tokens read")
    assert about["preempted"] == (4.0, "2× its memory went to another reply")


@pytest.mark.parametrize(
    ("values", "cells"),
    [([1, 1, 1], [4, 3, 3]), ([0, 0, 0], [0, 0, 0]), ([9.96, 0.04, 0], [10, 0, 0]), ([1, 0, 9], [1, 0, 9])],
)
def test_the_cells_of_the_bar_are_in_proportion_and_fill_it(values: list[float], cells: list[int]) -> None:
    assert shares(values, 10) == cells


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "The largest part of the time, 40 %, went into waiting for memory that another reply had taken"),
        ({"prefill_s": 30.0, "e2e_s": 37.0}, "Most of the time, 81 %, went into reading the prompt."),
        ({"queue_s": 20.0, "e2e_s": 29.0}, "Most of the time, 69 %, went into waiting until the engine began."),
        ({"decode_s": 12.0, "e2e_s": 20.0}, "Most of the time, 60 %, went into writing the reply."),
    ],
)
def test_one_sentence_names_the_largest_part(changes: dict[str, float], said: str) -> None:
    assert verdict(msgspec.structs.replace(SPENT, **changes)).startswith(said)


class TestTheCauseOfAMiss:
    @pytest.fixture
    def branch(self, store: Store) -> list[StoredMessage]:
        """Two exchanges of 100 tokens a message; the last reply reused all but the last message."""
        conversation = store.create_conversation(model="smol", system_prompt="Be brief.")
        parent = None
        for role in ("user", "assistant", "user", "assistant"):
            parent = store.append_message(conversation.id, parent, role, "x", token_ids=range(100)).id
        store.save_metrics(parent, Metrics(prompt_tokens=300, cached_tokens=199))
        return store.path(conversation.id)

    def cause(self, store: Store, branch: list[StoredMessage], index: int = 3, prompt: str | None = "Be brief.") -> str:
        return cause(store.conversation(branch[0].conversation_id), branch, index, prompt)

    def changed(self, branch: list[StoredMessage], index: int = 3, **changes: object) -> list[StoredMessage]:
        message = msgspec.structs.replace(branch[index], **changes)
        return [*branch[:index], message, *branch[index + 1 :]]

    def test_nothing_was_missed(self, store: Store, branch: list[StoredMessage]) -> None:
        assert self.cause(store, branch) == "All of the history was cached: only what is new was read."

    def test_the_template_wrote_the_history_differently(self, store: Store, branch: list[StoredMessage]) -> None:
        said = self.cause(store, self.changed(branch, divergence=DIVERGENCE))
        assert said == (
            "Token 4 is the first one that is not what was read before: “<think>⏎” was, “So” is in its place. "
            "Cause: the chat template writes message 2 (assistant) differently from what was fed."
        )

    def test_it_was_evicted(self, store: Store, branch: list[StoredMessage]) -> None:
        evicted = self.changed(branch, metrics=Metrics(prompt_tokens=300, cached_tokens=40, evicted_tokens=160))
        assert self.cause(store, evicted).startswith(
            "160 tokens had been read before and evicted under memory pressure"
        )

    def test_another_model_had_read_it(self, store: Store, branch: list[StoredMessage]) -> None:
        cold = self.changed(branch, metrics=Metrics(prompt_tokens=300))
        others = self.changed(self.changed(cold, 0, model="qwen"), 1, model="qwen")
        assert "read by another model, qwen" in self.cause(store, others)

    def test_the_engine_had_started_anew(self, store: Store, branch: list[StoredMessage]) -> None:
        cold = self.changed(branch, metrics=Metrics(prompt_tokens=300, cached_tokens=20))
        assert self.cause(store, cold).startswith("180 tokens of the history were not in the cache: the engine had")

    def test_a_first_message_has_no_history(self, store: Store, branch: list[StoredMessage]) -> None:
        first = self.changed(branch, 1, metrics=Metrics(prompt_tokens=100))
        assert "a persona that was new to the cache" in self.cause(store, first, 1)
        assert "a changed system prompt" in self.cause(store, first, 1, prompt="Be verbose.")
        shared = self.changed(branch, 1, metrics=Metrics(prompt_tokens=100, cached_tokens=60))
        assert "60 tokens were shared with another conversation" in self.cause(store, shared, 1)


async def answered(chat: Chat, text: str, spent: Metrics, divergence: Divergence | None = None) -> None:
    request = await chat.send(text)
    chat.client.accept(request, divergence)
    chat.client.emit(Finished(request, "stop", f"about {text}", (1, 2, 3), spent))
    await chat.until(lambda: not chat.tab.reply)


async def test_a_key_shows_where_the_time_of_the_last_reply_went(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.press("alt+w")
        await answered(chat, "oceans", SPENT)
        await chat.press("alt+w")
        await chat.shows(
            "Where the time went · reply 1 of 1", "oceans", "queued", "1.00 s    10 %", "400 tokens reused"
        )
        await chat.shows("3.00 s    30 %", "2.00 s    20 %", "4.00 s    40 %", "10.00 s")
        await chat.shows("The largest part of the time, 40 %", "The first message here")
        await chat.press("escape")
        await chat.shows_not("Where the time went")


async def test_the_arrows_walk_through_the_replies_of_the_branch(open_chat: Open) -> None:
    async with open_chat() as chat:
        await answered(chat, "oceans", metrics(3))
        await answered(chat, "deserts", SPENT, DIVERGENCE)
        await chat.press("alt+w")
        await chat.shows("reply 2 of 2", "deserts", "Token 4 is the first one")
        await chat.press("left", "left")
        await chat.shows("reply 1 of 2", "oceans", "The first message here")
        await chat.press("right")
        await chat.shows("reply 2 of 2")


async def test_a_click_on_the_statistics_of_an_old_reply_opens_its_time(open_chat: Open) -> None:
    async with open_chat(size=(80, 40)) as chat:
        await answered(chat, "oceans", metrics(3))
        await answered(chat, "deserts", SPENT)
        await chat.shows("about deserts", "preempted 2×")
        await chat.pilot.click(chat.app.query(Foot).first(), offset=(5, 0))
        await chat.shows("reply 1 of 2", "oceans")


async def test_a_divergence_is_there_again_after_a_restart(open_chat: Open, store: Store) -> None:
    async with open_chat() as chat:
        await answered(chat, "oceans", metrics(3))
        await answered(chat, "deserts", SPENT, DIVERGENCE)
    async with open_chat() as chat:
        await chat.shows("about deserts")
        await chat.type("/stats")
        await chat.press("enter")
        await chat.shows("“<think>⏎” was, “So” is in its place", "4.00 s    40 %")


@pytest.mark.parametrize("size", [(40, 10), (300, 100)])
async def test_it_fits_every_size(open_chat: Open, size: tuple[int, int]) -> None:
    async with open_chat(size=size) as chat:
        await answered(chat, "oceans", SPENT)
        await chat.press("alt+w")
        await chat.shows("Where the time went", "queued", "▓▓▓", "Esc closes")


async def test_a_reply_that_lost_its_memory_says_that_it_was_preempted(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("oceans")
        chat.client.accept(request)
        chat.client.emit(Progress(request, "queued", 0, Metrics(preemptions=1), "12 KV blocks, 3 available"))
        await chat.shows("preempted: 12 KV blocks, 3 available")


async def test_a_reply_that_is_slow_tells_why_while_it_runs(open_chat: Open) -> None:
    async with open_chat() as chat:
        request = await chat.send("oceans")
        chat.client.accept(request)
        chat.client.emit(Progress(request, "queued", 0, Metrics(queue_s=8.0, e2e_s=8.0), "its turn"))
        await chat.press("alt+w")
        await chat.shows("Most of the time, 100 %, went into waiting until the engine began.")


async def test_the_key_of_what_is_not_possible_now_writes_nothing(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.press("alt+w", "alt+r", "alt+n", "x")
        await chat.until(lambda: chat.tab.draft == "x")


async def test_the_message_that_the_cursor_is_on_tells_of_its_own_reply(open_chat: Open) -> None:
    async with open_chat(size=(100, 40)) as chat:
        await answered(chat, "oceans", metrics(3))
        await answered(chat, "deserts", SPENT)
        await chat.press("alt+up", "up", "up", "up")
        await chat.shows("w Why so slow")
        await chat.press("w")
        await chat.shows("reply 1 of 2", "oceans")

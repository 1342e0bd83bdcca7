"""A reply that was stopped or cut goes on: the same message, token for token."""

from __future__ import annotations

import pytest
from opened_conversation import Opened

from engine.api import Divergence, Failed, Metrics
from kvchat.continuation import continued
from kvchat.store import StoredMessage


@pytest.fixture
def stopped(opened: Opened) -> Opened:
    """A question whose reply was stopped behind its second token."""
    opened.controller.send("Tell me a story")
    opened.client.accept("r1")
    opened.client.say("r1", "Once upon")
    opened.controller.stop()
    opened.client.finish("r1", "aborted")
    return opened


def reply_of(opened: Opened) -> StoredMessage:
    return opened.store.path(opened.controller.id)[-1]


def test_the_engine_gets_the_reply_as_an_open_last_message(stopped: Opened) -> None:
    before = reply_of(stopped)
    stopped.controller.continue_reply()
    [asked, begun] = stopped.client.requests["r2"].messages
    assert (begun.role, begun.text, begun.token_ids) == ("assistant", "Once upon", before.token_ids)
    assert asked.token_ids == stopped.store.path(stopped.controller.id)[0].token_ids


def test_the_message_grows_and_no_other_is_made(stopped: Opened) -> None:
    before = reply_of(stopped)
    stopped.controller.continue_reply()
    assert reply_of(stopped).status == "streaming"
    stopped.client.accept("r2")
    stopped.client.say("r2", " a time")
    assert stopped.controller.reply and stopped.controller.reply.text == "Once upon a time"
    stopped.client.finish("r2")
    after = reply_of(stopped)
    assert (after.id, after.text, after.status, after.finish_reason) == (
        before.id,
        "Once upon a time",
        "complete",
        "stop",
    )
    assert after.token_ids[:2] == before.token_ids and len(after.token_ids) == 4
    assert stopped.controller.context_tokens == len(stopped.store.path(stopped.controller.id)[0].token_ids) + 4


def test_while_it_goes_on_no_token_counts_twice(stopped: Opened) -> None:
    before = stopped.controller.context_tokens
    stopped.controller.continue_reply()
    stopped.client.accept("r2")
    assert stopped.controller.context_tokens == before
    stopped.client.say("r2", " a time")
    assert stopped.controller.context_tokens == before + 2


def test_the_metrics_are_those_of_the_whole_reply(stopped: Opened) -> None:
    stopped.controller.continue_reply()
    stopped.client.reply("r2", " a time")
    metrics = reply_of(stopped).metrics
    assert metrics and metrics.completion_tokens == 4 and metrics.ttft_s == 0.182


def test_a_reply_that_is_stopped_again_keeps_everything(stopped: Opened) -> None:
    stopped.controller.continue_reply()
    stopped.controller.stop()  # before the engine took it
    assert (reply_of(stopped).text, reply_of(stopped).status) == ("Once upon", "stopped")
    stopped.controller.continue_reply()
    stopped.client.accept("r3")
    stopped.client.say("r3", " a")
    stopped.controller.stop()
    stopped.client.finish("r3", "aborted")
    assert reply_of(stopped).text == "Once upon a" and stopped.controller.can_continue


def test_a_reply_that_the_engine_died_under_goes_on(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.accept("r1")
    opened.client.say("r1", "Once upon")
    opened.client.die()
    assert opened.controller.can_continue
    opened.controller.continue_reply()
    opened.client.reply("r2", " a time")
    assert (reply_of(opened).text, reply_of(opened).error) == ("Once upon a time", "")


def test_a_reply_cut_at_the_token_limit_goes_on_and_a_complete_one_does_not(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.accept("r1")
    opened.client.say("r1", "Once upon")
    opened.client.finish("r1", "length")
    assert opened.controller.can_continue
    opened.controller.continue_reply()
    opened.client.reply("r2", " a time")
    assert not opened.controller.can_continue


def test_a_reply_of_another_model_cannot_go_on(stopped: Opened) -> None:
    assert not stopped.open(stopped.controller.id, model="another").can_continue


def test_a_refusal_takes_nothing_away(stopped: Opened) -> None:
    stopped.controller.continue_reply()
    stopped.client.emit(Failed("r2", "the prompt has 9,000 tokens", refused=True, too_long=True))
    assert [message.text for message in stopped.controller.messages] == ["Tell me a story", "Once upon"]
    assert (reply_of(stopped).status, reply_of(stopped).error) == ("failed", "the prompt has 9,000 tokens")
    assert stopped.controller.draft == ""


def test_after_a_divergence_the_ids_are_again_what_the_engine_was_fed(stopped: Opened) -> None:
    begun = reply_of(stopped).token_ids
    stopped.controller.continue_reply()
    messages = stopped.client.requests["r2"].messages
    stopped.client.requests["r2"] = type(stopped.client.requests["r2"])(messages=messages[:1])
    stopped.client.accept("r2", Divergence(0, "Tell", "tell", "the template changed"))
    [asked, reply] = stopped.store.path(stopped.controller.id)
    assert asked.token_ids == stopped.client.fed["r2"] and reply.token_ids == begun


def test_a_message_that_waits_is_sent_after_the_rest_of_the_reply(stopped: Opened) -> None:
    stopped.controller.continue_reply()
    stopped.controller.send("And then?")
    stopped.client.reply("r2", " a time")
    assert [message.text for message in stopped.controller.messages][:3] == [
        "Tell me a story",
        "Once upon a time",
        "And then?",
    ]


def test_the_time_per_token_is_that_within_the_parts() -> None:
    first = Metrics(
        queue_s=0.1, ttft_s=0.5, tpot_s=0.1, e2e_s=1.4, prompt_tokens=50, cached_tokens=9, completion_tokens=10
    )
    then = Metrics(
        queue_s=0.01, ttft_s=0.05, tpot_s=0.2, e2e_s=0.45, prompt_tokens=60, cached_tokens=59, completion_tokens=3
    )
    whole = continued(first, then)
    assert whole.tpot_s == pytest.approx((9 * 0.1 + 2 * 0.2) / 11) and whole.completion_tokens == 13
    assert (whole.ttft_s, whole.prompt_tokens, whole.cached_tokens) == (0.5, 50, 9)
    assert (whole.queue_s, whole.e2e_s) == pytest.approx((0.11, 1.85))
    assert continued(Metrics(prompt_tokens=50), then) == then

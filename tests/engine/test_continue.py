"""A reply that was stopped or cut goes on as if it never had been, on a tiny random model in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_tokenizers import tokenizer_of

from engine.api import Accepted, Finished, GenerationRequest, Message, SamplingParams, TokenDelta
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import InvalidRequest
from engine.prompt import PromptBuilder

ASKED = "Tell me a story of a fox."
WHOLE = 24


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Engine:
    return engine_with(tiny_model, "float32")


def engine_with(model: Path, kv_dtype: str) -> Engine:
    return Engine(EngineConfig(model=model, dtype="float32", kv_dtype=kv_dtype, kv_memory=1 << 20, threads=1))


def run(engine: Engine, messages: tuple[Message, ...], stop_after: int = 0, **params: object) -> tuple[list, Finished]:
    """All events of a request, which is stopped after some tokens, and the last of them."""
    sampling = SamplingParams(**({"temperature": 0, "max_tokens": WHOLE, "ignore_eos": True} | params))  # type: ignore[arg-type]
    request_id = engine.submit(GenerationRequest(messages=messages, sampling=sampling))
    events: list = []
    while engine.has_work:
        events += engine.step()
        engine.check_integrity()
        if stop_after and sum(isinstance(event, TokenDelta) for event in events) >= stop_after:
            engine.abort(request_id)
    [done] = [event for event in events if isinstance(event, Finished)]
    return events, done


def stopped(engine: Engine, after: int, **params: object) -> tuple[Message, ...]:
    """A conversation whose reply was stopped, with its ids as the application keeps them."""
    events, done = run(engine, (Message("user", ASKED),), after, **params)
    [accepted] = [event for event in events if isinstance(event, Accepted)]
    assert len(done.token_ids) == after and done.finish_reason == "aborted"
    return (Message("user", ASKED, accepted.new_token_ids), Message("assistant", done.text, done.token_ids))


@pytest.mark.parametrize("kv_dtype", ["float32", "int8", "int4"])
def test_greedy_stop_and_continue_equals_the_reply_that_was_never_stopped(tiny_model: Path, kv_dtype: str) -> None:
    engine = engine_with(tiny_model, kv_dtype)
    whole = run(engine_with(tiny_model, kv_dtype), (Message("user", ASKED),))[1]
    for after in (1, 5, 16, 23):
        done = run(engine, stopped(engine, after), max_tokens=WHOLE - after)[1]
        assert (done.token_ids, done.text) == (whole.token_ids, whole.text)


def test_all_that_was_fed_is_reused(engine: Engine) -> None:
    messages = stopped(engine, 9, seed=2, temperature=1.0)
    fed = sum(len(message.token_ids) for message in messages)
    events, done = run(engine, messages)
    [accepted] = [event for event in events if isinstance(event, Accepted)]
    assert (accepted.prompt_tokens, accepted.new_token_ids, accepted.divergence) == (fed, (), None)
    assert done.metrics.cached_tokens == fed - 1, "the token sampled last was never fed"
    assert done.metrics.completion_tokens == WHOLE


@pytest.mark.parametrize(
    "params", [{}, {"repetition_penalty": 1.3}, {"presence_penalty": 1.0, "frequency_penalty": 0.5}]
)
def test_with_a_seed_the_random_tokens_are_the_same_too(engine: Engine, params: dict[str, float]) -> None:
    sampling = params | {"temperature": 1.0, "seed": 7}
    whole = run(engine, (Message("user", ASKED),), **sampling)[1]
    done = run(engine, stopped(engine, 10, **sampling), **sampling | {"max_tokens": WHOLE - 10})[1]
    assert done.token_ids == whole.token_ids


def test_the_deltas_follow_the_text_that_was_certain_before(engine: Engine) -> None:
    messages = stopped(engine, 7)
    events, done = run(engine, messages)
    [accepted] = [event for event in events if isinstance(event, Accepted)]
    said = "".join(event.text for event in events if isinstance(event, TokenDelta))
    assert accepted.continued_text + said == done.text


def test_a_stop_string_is_found_across_the_seam(engine: Engine) -> None:
    whole = run(engine, (Message("user", ASKED),))[1]
    cut = next(
        at for at in range(2, 20) if whole.text[at - 1 : at + 1].isascii() and whole.text[at - 1 : at + 1].strip()
    )
    stop = whole.text[cut - 1 : cut + 1]
    expected = run(engine, (Message("user", ASKED),), stop=(stop,))[1]
    after = len(expected.token_ids) - 1
    done = run(engine, stopped(engine, after, stop=(stop,)), stop=(stop,))[1]
    assert (done.text, done.finish_reason) == (expected.text, "stop")


def test_a_reply_that_has_ended_cannot_be_continued(engine: Engine) -> None:
    [end] = engine.tokenizer.eos_ids
    begun = stopped(engine, 3)
    ended = (begun[0], Message("assistant", begun[1].text, (*begun[1].token_ids, end)))
    with pytest.raises(InvalidRequest, match="come to its end"):
        engine.submit(GenerationRequest(messages=ended))
    assert not engine.has_work


def test_a_reply_without_ids_is_no_beginning() -> None:
    builder = PromptBuilder(tokenizer_of())
    with pytest.raises(InvalidRequest, match="with a reply that has its token ids"):
        builder.build([Message("user", "hello"), Message("assistant", "world")])


def test_a_history_that_the_template_writes_otherwise_is_rebuilt_before_the_open_reply() -> None:
    tokenizer = tokenizer_of()
    builder = PromptBuilder(tokenizer)
    fed = builder.build([Message("user", "hello")]).ids
    begun = tuple(tokenizer.encode_plain("world"))
    edited = [Message("user", "fox", fed), Message("assistant", "world", begun)]
    prompt = builder.build(edited)
    assert prompt.divergence is not None and prompt.open_reply == begun
    assert prompt.ids == builder.build([Message("user", "fox")]).ids + begun

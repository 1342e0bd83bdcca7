"""A conversation that goes on from copies of another one's messages, ids included, finds their KV."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import Accepted, Finished, GenerationRequest, Message, SamplingParams
from engine.config import EngineConfig
from engine.engine import Engine

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Engine:
    return Engine(EngineConfig(model=tiny_model, dtype="float32", kv_memory=1 << 20, threads=1))


def ask(engine: Engine, history: tuple[Message, ...], text: str, owner: str) -> tuple[tuple[Message, ...], Finished]:
    """The conversation with the reply to `text`, kept as the application keeps it."""
    message = Message("user", text)
    engine.submit(GenerationRequest(messages=(*history, message), sampling=GREEDY, owner=owner))
    events: list = []
    while engine.has_work:
        events += engine.step()
    [accepted] = [event for event in events if isinstance(event, Accepted)]
    [done] = [event for event in events if isinstance(event, Finished)]
    asked = Message("user", text, accepted.new_token_ids)
    return (*history, asked, Message("assistant", done.text, done.token_ids)), done


@pytest.mark.parametrize("at", [2, 4])
def test_a_fork_recomputes_nothing_that_was_fed(engine: Engine, tiny_model: Path, at: int) -> None:
    talk: tuple[Message, ...] = ()
    for text in ("Who are you?", "And what do you do?", "Why?"):
        talk, _ = ask(engine, talk, text, "first")
    _, done = ask(engine, talk[:at], "Another way, please.", "fork")
    fed = sum(len(message.token_ids) for message in talk[:at]) - 1  # the token sampled last was not
    assert done.metrics.cached_tokens >= fed, "and the beginning of the next turn, which is the same"
    alone = Engine(EngineConfig(model=tiny_model, dtype="float32", kv_memory=1 << 20, threads=1, prefix_caching=False))
    assert ask(alone, talk[:at], "Another way, please.", "alone")[1].token_ids == done.token_ids

"""What is exported as JSON comes back exactly as it was."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Divergence, Metrics, SamplingParams
from kvchat.exchange import ExchangeError, read_conversations, render
from kvchat.store import ConversationCopy, MessageCopy, Store

DEFAULTS = SamplingParams()
SAMPLING = SamplingParams(
    temperature=0.1, top_k=7, stop=("END", '"'), seed=11, logit_bias={5: -1.5, 100_000: 0.1}, ignore_eos=True
)
METRICS = Metrics(
    queue_s=0.001, ttft_s=0.1, tpot_s=1 / 3, e2e_s=2.5, tokens_per_s=3.0, prompt_tokens=9, completion_tokens=2
)

DIVERGENCE = Divergence(2, "a", "b", "the template changed its mind")


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "other.db")


def branched(store: Store) -> str:
    """A conversation with an edited question, a stopped reply, a failed one, and everything else that can be kept."""
    conversation = store.create_conversation(
        title="Häfen ⚓", persona="coder", system_prompt="Be brief.\n", model="smol", sampling=SAMPLING
    )
    first = store.append_message(conversation.id, None, "user", "Hello \x00 👩🏽‍🚀", token_ids=(1, 2, 4_000_000_000))
    reply = store.append_message(conversation.id, first.id, "assistant", "Hi!", status="stopped", token_ids=(3,))
    store.update_message(reply.id, finish_reason="aborted", divergence=DIVERGENCE)
    store.save_metrics(reply.id, METRICS)
    edited = store.append_message(conversation.id, None, "user", "Hallo")
    store.append_message(conversation.id, edited.id, "assistant", "", status="failed")
    store.update_conversation(conversation.id, tags=["sea", "b"], archived=True, leaf_id=reply.id)
    return conversation.id


def test_everything_of_a_conversation_survives_export_and_import(store: Store, other: Store) -> None:
    conversation_id = branched(store)
    exported = render([store.copy_of(conversation_id)], "json")
    assert other.add_copies(read_conversations(exported.encode(), DEFAULTS)) == [conversation_id]

    assert other.copy_of(conversation_id) == store.copy_of(conversation_id)
    assert render([other.copy_of(conversation_id)], "json") == exported
    assert [message.text for message in other.path(conversation_id)] == ["Hello \x00 👩🏽‍🚀", "Hi!"]
    assert other.path(conversation_id)[-1].metrics == METRICS
    assert other.path(conversation_id)[-1].divergence == DIVERGENCE
    assert other.conversation(conversation_id).sampling == SAMPLING
    assert len(other.children(None, conversation_id)) == 2
    other.close()


def test_importing_twice_changes_nothing_even_what_was_written_since(store: Store, other: Store) -> None:
    copies = read_conversations(render([store.copy_of(branched(store))], "json").encode(), DEFAULTS)
    [conversation_id] = other.add_copies(copies)
    other.append_message(conversation_id, other.conversation(conversation_id).leaf_id, "user", "And then?")
    assert other.add_copies(copies) == []
    assert [message.text for message in other.path(conversation_id)][-1] == "And then?"
    other.close()


def test_what_was_imported_can_be_found(store: Store, other: Store) -> None:
    other.add_copies([store.copy_of(branched(store))])
    assert [hit.snippet for hit in other.search("hafen")] == ["Häfen ⚓"]
    assert [hit.message.text for hit in other.search("hallo") if hit.message] == ["Hallo"]
    other.close()


def test_when_one_conversation_cannot_be_stored_none_is(store: Store, other: Store) -> None:
    good = store.copy_of(branched(store))
    bad = msgspec.structs.replace(
        good,
        id="00000000-0000-4000-8000-000000000001",
        messages=(MessageCopy(parent=None, role="robot", **AT),),
        leaf=0,
    )
    with pytest.raises(sqlite3.IntegrityError):
        other.add_copies([good, bad])
    assert other.conversations(include_archived=True) == []
    other.close()


def test_a_reply_that_is_being_written_is_exported_as_stopped(store: Store) -> None:
    conversation = store.create_conversation()
    question = store.append_message(conversation.id, None, "user", "?")
    store.append_message(conversation.id, question.id, "assistant", "half", status="streaming")
    assert store.copy_of(conversation.id).messages[-1].status == "stopped"


AT = {"text": "", "created_at": 0.0}
HUGE = 99999999999999999999999


GOOD = {
    "id": "7b0c2a52-3d30-4b34-8f62-6a2a5c1f0d11",
    "title": "",
    "created_at": 0.0,
    "updated_at": 0.0,
    "leaf": 0,
    "messages": [{"parent": None, "role": "user", **AT}],
}


@st.composite
def conversations(draw: st.DrawFn) -> ConversationCopy:
    size = draw(st.integers(1, 8))
    messages = tuple(
        MessageCopy(
            parent=draw(st.one_of(st.none(), st.integers(0, index - 1))) if index else None,
            role=draw(st.sampled_from(["user", "assistant", "system"])),
            text=draw(st.text()),
            token_ids=tuple(draw(st.lists(st.integers(0, 2**32 - 1), max_size=4))),
            created_at=draw(st.floats(0, 4e9)),
        )
        for index in range(size)
    )
    return ConversationCopy(
        id=str(draw(st.uuids())),
        title=draw(st.text()),
        created_at=draw(st.floats(0, 4e9)),
        updated_at=draw(st.floats(0, 4e9)),
        leaf=draw(st.integers(0, size - 1)),
        messages=messages,
    )


@given(st.lists(conversations(), min_size=1, max_size=3))
def test_any_tree_of_messages_survives(copies: list[ConversationCopy]) -> None:
    assert read_conversations(render(copies, "json").encode(), DEFAULTS) == copies


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 2}, "version 2 of the format, this kvchat reads 1: upgrade kvchat"),
        ({"conversations": {}}, "conversations: expected `array`, got `object`"),
        ({"conversations": [{}]}, "conversation 1: object missing required field `id`"),
    ],
)
def test_a_file_of_kvchat_that_is_none_says_where(change: dict[str, object], problem: str) -> None:
    data = {"format": "kvchat", "version": 1, "conversations": []} | change
    assert refusal(data) == problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"titel": ""}, ": object contains unknown field `titel`"),
        ({"id": "../x"}, ": id must be a uuid in small letters, not '../x'"),
        ({"leaf": 1}, ": leaf is 1, and there are 1 messages"),
        ({"updated_at": -1.0}, ".updated_at: expected `float` >= 0.0"),
        ({"sampling": {"temperature": -1}}, ".sampling: temperature must be 0 or more, not -1.0"),
        ({"messages": [{"parent": 0, "role": "user", **AT}]}, ": message 0 has parent 0, which is none before it"),
        ({"messages": [{"parent": None, "role": "robot", **AT}]}, ".messages[0].role: invalid enum value 'robot'"),
        ({"created_at": 1e300}, ".created_at: expected `float` <= 253402300799.0"),
        ({"sampling": {"seed": HUGE}}, f".sampling: seed must be of at most 64 bits, not {HUGE}"),
        (
            {"sampling": {"logit_bias": {HUGE: 1}}},
            f".sampling: logit_bias must be of tokens of at most 64 bits, not {{{HUGE}: 1.0}}",
        ),
        (
            {"messages": [{"parent": None, "role": "user", **AT, "metrics": {"prompt_tokens": HUGE}}]},
            ".messages[0].metrics.prompt_tokens: expected `int` <= 9223372036854775807",
        ),
        (
            {"messages": [{"parent": None, "role": "user", **AT, "token_ids": [HUGE]}]},
            ".messages[0].token_ids[0]: expected `int` <= 4294967295",
        ),
        (
            {"messages": [{"parent": None, "role": "user", **AT, "token_ids": [-1]}]},
            ".messages[0].token_ids[0]: expected `int` >= 0",
        ),
    ],
)
def test_a_conversation_that_does_not_fit_together_says_where(change: dict[str, object], problem: str) -> None:
    data = {"format": "kvchat", "version": 1, "conversations": [GOOD, GOOD | change]}
    assert refusal(data) == f"conversation 2{problem}"


def test_a_conversation_that_does_not_say_what_is_shown_shows_its_last_message(store: Store) -> None:
    data = {"format": "kvchat", "version": 1, "conversations": [GOOD | {"leaf": None}]}
    [copy] = read_conversations(json.dumps(data).encode(), DEFAULTS)
    assert copy.leaf == 0
    [conversation_id] = store.add_copies([msgspec.structs.replace(copy, leaf=None)])  # as older imports left it
    assert store.copy_of(conversation_id) == copy


def test_an_endless_number_is_refused() -> None:
    raw = json.dumps(
        {
            "format": "kvchat",
            "version": 1,
            "conversations": [
                GOOD | {"messages": [{"parent": None, "role": "user", **AT, "metrics": {"queue_s": 7.5}}]}
            ],
        }
    ).replace("7.5", "1e999")
    with pytest.raises(ExchangeError, match=r"conversation 1.messages\[0\].metrics.queue_s: expected `float` <= "):
        read_conversations(raw.encode(), DEFAULTS)


def refusal(data: object) -> str:
    with pytest.raises(ExchangeError) as error:
        read_conversations(json.dumps(data).encode(), DEFAULTS)
    return str(error.value)

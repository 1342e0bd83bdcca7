"""Conversations, messages, metrics, tabs and drafts come back as they were saved."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from engine.api import Divergence, Metrics, SamplingParams
from kvchat.store import Conversation, Store, StoredMessage, StoreError, Tab

SAMPLING = SamplingParams(temperature=0, stop=("\n\n", "END"), seed=7, logit_bias={5: -1.5}, ignore_eos=True)
METRICS = Metrics(
    queue_s=0.01,
    ttft_s=0.2,
    tpot_s=0.03,
    prefill_s=0.19,
    decode_s=1.2,
    preempted_s=0.1,
    e2e_s=1.5,
    tokens_per_s=33.3,
    prompt_tokens=410,
    cached_tokens=400,
    evicted_tokens=5,
    completion_tokens=44,
    preemptions=1,
)
DIVERGENCE = Divergence(17, "<think>", "", "the chat template writes message 2 (assistant) differently")


def test_a_conversation_comes_back_as_it_was_created(path: Path) -> None:
    with Store.open(path) as store:
        created = store.create_conversation(
            title="Trip", persona="editor", system_prompt="Be brief.", model="smol", sampling=SAMPLING
        )
    with Store.open(path) as store:
        assert store.conversation(created.id) == created
        assert created == Conversation(
            id=created.id,
            title="Trip",
            auto_title=False,
            persona="editor",
            system_prompt="Be brief.",
            model="smol",
            sampling=SAMPLING,
            created_at=created.created_at,
            updated_at=created.created_at,
            archived=False,
            leaf_id=None,
            tags=(),
        )


def test_a_message_comes_back_with_its_token_ids_and_metrics(path: Path) -> None:
    with Store.open(path) as store:
        conversation = store.create_conversation(model="smol")
        question = store.append_message(conversation.id, None, "user", "Why?", token_ids=range(70_000, 70_003))
        reply = store.append_message(conversation.id, question.id, "assistant", "", status="streaming")
        store.update_message(
            reply.id,
            text="Because.",
            token_ids=[0, 1, 2**32 - 1],
            status="complete",
            finish_reason="stop",
            divergence=DIVERGENCE,
        )
        store.save_metrics(reply.id, METRICS)
    with Store.open(path) as store:
        assert store.path(conversation.id) == [
            question,
            StoredMessage(
                id=reply.id,
                conversation_id=conversation.id,
                parent_id=question.id,
                role="assistant",
                text="Because.",
                token_ids=(0, 1, 2**32 - 1),
                status="complete",
                finish_reason="stop",
                error="",
                model="smol",
                created_at=reply.created_at,
                metrics=METRICS,
                divergence=DIVERGENCE,
            ),
        ]
        assert question.token_ids == (70_000, 70_001, 70_002)
        assert question.metrics is None


def test_token_ids_lie_on_disk_as_little_endian_uint32(path: Path, store: Store) -> None:
    conversation = store.create_conversation()
    store.append_message(conversation.id, None, "user", "", token_ids=(1, 0x01020304))
    [(blob,)] = sqlite3.connect(path).execute("SELECT token_ids FROM messages")
    assert blob == b"\x01\0\0\0\x04\x03\x02\x01"


def test_metrics_have_the_same_names_in_python_and_in_the_database(path: Path, store: Store) -> None:
    columns = [row[1] for row in sqlite3.connect(path).execute("PRAGMA table_info(message_metrics)")]
    assert set(columns) == {"message_id", *Metrics.__struct_fields__}


def test_metrics_saved_again_replace_the_old_ones(store: Store) -> None:
    conversation = store.create_conversation()
    message = store.append_message(conversation.id, None, "assistant", "hi")
    store.save_metrics(message.id, METRICS)
    store.save_metrics(message.id, Metrics())
    assert store.message(message.id).metrics == Metrics()


def test_a_title_of_the_user_is_told_from_one_of_the_program(store: Store) -> None:
    conversation = store.create_conversation()
    assert conversation.auto_title
    assert store.update_conversation(conversation.id, title="Guessed", auto_title=True).auto_title
    named = store.update_conversation(conversation.id, title="Mine")
    assert (named.title, named.auto_title) == ("Mine", False)
    assert not store.update_conversation(conversation.id, archived=True).auto_title


def test_an_update_changes_what_is_given_and_nothing_else(store: Store) -> None:
    before = store.create_conversation(title="Trip", persona="editor", model="smol")
    after = store.update_conversation(
        before.id, sampling=SAMPLING, system_prompt="New.", tags=["work", "paris", "work"]
    )
    assert (after.sampling, after.system_prompt, after.tags) == (SAMPLING, "New.", ("paris", "work"))
    assert (after.title, after.persona, after.model) == ("Trip", "editor", "smol")
    assert store.update_conversation(before.id, tags=()).tags == ()


def test_the_conversation_last_written_to_comes_first(store: Store) -> None:
    old, new = store.create_conversation(title="old"), store.create_conversation(title="new")
    assert [found.title for found in store.conversations()] == ["new", "old"]
    store.append_message(old.id, None, "user", "again")
    store.update_conversation(new.id, title="renamed")
    assert [found.title for found in store.conversations()] == ["old", "renamed"]


def test_archived_conversations_are_listed_on_request(store: Store) -> None:
    kept = store.create_conversation(title="kept")
    archived = store.create_conversation(title="archived")
    store.update_conversation(archived.id, archived=True)
    assert [found.id for found in store.conversations()] == [kept.id]
    assert [found.id for found in store.conversations(include_archived=True)] == [archived.id, kept.id]


def test_a_message_keeps_the_model_it_was_written_with(store: Store) -> None:
    conversation = store.create_conversation(model="small")
    first = store.append_message(conversation.id, None, "user", "hi")
    store.update_conversation(conversation.id, model="large")
    second = store.append_message(conversation.id, first.id, "assistant", "hello")
    assert [message.model for message in store.path(conversation.id)] == ["small", "large"]
    assert second.model == "large"


def test_regenerating_adds_a_sibling_and_shows_it(store: Store) -> None:
    conversation = store.create_conversation()
    question = store.append_message(conversation.id, None, "user", "Why?")
    first = store.append_message(conversation.id, question.id, "assistant", "Because.")
    second = store.append_message(conversation.id, question.id, "assistant", "It depends.")
    assert store.siblings(first.id) == [first, second]
    assert store.path(conversation.id) == [question, second]
    store.update_conversation(conversation.id, leaf_id=first.id)
    assert store.path(conversation.id) == [question, first]


def test_editing_the_first_message_adds_a_root(store: Store) -> None:
    conversation = store.create_conversation()
    first = store.append_message(conversation.id, None, "user", "Helo")
    edited = store.append_message(conversation.id, None, "user", "Hello")
    assert store.children(None, conversation.id) == [first, edited]
    assert store.path(conversation.id) == [edited]


def test_a_message_cannot_continue_another_conversation(store: Store) -> None:
    here, there = store.create_conversation(), store.create_conversation()
    foreign = store.append_message(there.id, None, "user", "hi")
    with pytest.raises(StoreError, match="no longer exists"):
        store.append_message(here.id, foreign.id, "assistant", "hello")
    with pytest.raises(StoreError, match="no longer exists"):
        store.update_conversation(here.id, leaf_id=foreign.id)
    assert store.path(here.id) == []


def test_tabs_and_drafts_come_back_in_their_order(path: Path) -> None:
    with Store.open(path) as store:
        one, two = store.create_conversation(), store.create_conversation()
        store.save_tabs([Tab(two.id, draft="half a thou"), Tab(one.id, active=True)])
        store.save_draft(two.id, "half a thought")
    with Store.open(path) as store:
        assert store.open_tabs() == [Tab(two.id, draft="half a thought"), Tab(one.id, active=True)]
        store.save_tabs([Tab(one.id)])
        assert store.open_tabs() == [Tab(one.id)]


def test_deleting_a_conversation_takes_all_that_belongs_to_it(path: Path, store: Store) -> None:
    gone, kept = store.create_conversation(title="gone"), store.create_conversation(title="kept")
    for conversation in (gone, kept):
        question = store.append_message(conversation.id, None, "user", "Why?")
        reply = store.append_message(conversation.id, question.id, "assistant", "Because.")
        store.save_metrics(reply.id, METRICS)
        store.update_conversation(conversation.id, tags=["x"])
    store.save_tabs([Tab(gone.id), Tab(kept.id)])
    store.delete_conversation(gone.id)
    assert [found.id for found in store.conversations()] == [kept.id]
    assert store.open_tabs() == [Tab(kept.id)]
    counts = {"conversations": 1, "messages": 2, "message_metrics": 1, "tags": 1, "open_tabs": 1}
    connection = sqlite3.connect(path)
    assert counts == {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in counts}


def test_the_recent_conversations_are_those_that_were_written_in_the_newest_first(store: Store) -> None:
    written = []
    for title in ("first", "second", "third", "put away"):
        conversation = store.create_conversation(title=title)
        store.append_message(conversation.id, None, "user", "hello")
        written.append(conversation.id)
    store.create_conversation(title="nothing written")
    store.update_conversation(written[3], archived=True)
    store.append_message(written[0], None, "user", "again")
    found, more = store.recent_conversations(2)
    assert ([each.title for each in found], more) == (["first", "third"], 1)
    found, more = store.recent_conversations(10)
    assert ([each.title for each in found], more) == (["first", "third", "second"], 0)

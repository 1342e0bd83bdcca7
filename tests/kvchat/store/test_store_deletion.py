"""Deleted messages: gone for whoever looks, brought back on demand, gone for good when the program ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from kvchat.store import Conversation, Store, StoredMessage, StoreError, Tab


@pytest.fixture
def conversation(store: Store) -> Conversation:
    return store.create_conversation(title="Foxes")


@pytest.fixture
def chain(store: Store, conversation: Conversation) -> list[StoredMessage]:
    """A question and its answer, twice."""
    return extend(store, conversation, None, "one", "two", "three", "four")


def extend(store: Store, conversation: Conversation, parent: int | None, *texts: str) -> list[StoredMessage]:
    added: list[StoredMessage] = []
    for text in texts:
        role = "assistant" if text in ("two", "four", "other") else "user"
        added.append(store.append_message(conversation.id, parent, role, text, token_ids=[1, 2]))
        parent = added[-1].id
    return added


def shown(store: Store, conversation: Conversation) -> list[str]:
    return [message.text for message in store.path(conversation.id)]


def rows(path: Path) -> int:
    return sqlite3.connect(path).execute("SELECT count(*) FROM messages").fetchone()[0]


def test_a_message_goes_with_all_that_follows_it(
    store: Store, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    store.delete_message(chain[1].id)
    assert shown(store, conversation) == ["one"]
    assert store.tree(conversation.id) == {None: [chain[0].id]}
    assert store.children(chain[0].id, conversation.id) == []
    assert store.search("three") == [] and len(store.search("one")) == 1
    assert [message.text for message in store.copy_of(conversation.id).messages] == ["one"]


def test_it_comes_back_as_it_was(store: Store, conversation: Conversation, chain: list[StoredMessage]) -> None:
    store.delete_message(chain[1].id)
    store.undelete(conversation.id)
    assert store.path(conversation.id) == chain
    assert len(store.search("three")) == 1 and not store.has_deleted(conversation.id)


def test_deletions_are_taken_back_one_by_one(
    store: Store, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    for message in (chain[3], chain[1], chain[0]):
        store.delete_message(message.id)
    assert shown(store, conversation) == []
    for texts in (["one"], ["one", "two", "three"], ["one", "two", "three", "four"]):
        assert store.has_deleted(conversation.id)
        store.undelete(conversation.id)
        assert shown(store, conversation) == texts
    store.undelete(conversation.id)
    assert store.path(conversation.id) == chain


def test_beside_what_is_deleted_the_newest_other_branch_is_shown(
    store: Store, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    [other] = extend(store, conversation, chain[0].id, "other")
    store.delete_message(other.id)
    assert shown(store, conversation) == ["one", "two", "three", "four"]
    store.undelete(conversation.id)
    assert shown(store, conversation) == ["one", "other"]


def test_a_branch_that_is_not_shown_goes_unseen(
    store: Store, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    extend(store, conversation, chain[0].id, "other")
    store.delete_message(chain[1].id)
    assert shown(store, conversation) == ["one", "other"]


def test_other_conversations_keep_their_own_deletions(store: Store, conversation: Conversation) -> None:
    [mine] = extend(store, conversation, None, "mine")
    second = store.create_conversation()
    [yours] = extend(store, second, None, "yours")
    store.delete_message(mine.id)
    store.delete_message(yours.id)
    store.undelete(conversation.id)
    assert shown(store, conversation) == ["mine"] and shown(store, second) == []


def test_what_is_deleted_stays_in_the_file_until_the_store_is_closed(
    store: Store, path: Path, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    store.delete_message(chain[2].id)
    assert rows(path) == 4
    store.close()
    assert rows(path) == 2
    with Store.open(path) as again:
        assert shown(again, conversation) == ["one", "two"] and not again.has_deleted(conversation.id)


def test_a_conversation_of_which_nothing_is_left_goes_too_unless_it_is_a_tab(store: Store, path: Path) -> None:
    gone, kept = store.create_conversation(), store.create_conversation()
    store.save_tabs([Tab(kept.id)])
    for each in (gone, kept):
        [message] = extend(store, each, None, "one")
        store.delete_message(message.id)
    store.close()
    with Store.open(path) as again:
        assert [each.id for each in again.conversations()] == [kept.id]


def test_what_a_killed_program_deleted_is_gone_at_the_next_start(
    store: Store, path: Path, conversation: Conversation, chain: list[StoredMessage], run_beside: Callable[[str], Popen]
) -> None:
    other = run_beside(f"store = Store.open(path); store.delete_message({chain[2].id}); say('done'); sys.stdin.read()")
    assert other.stdout and other.stdout.readline() == "done\n"
    with Store.open(path):
        assert rows(path) == 4, "it still runs"
    other.kill()
    other.wait()
    with Store.open(path) as again:
        assert rows(path) == 2 and shown(again, conversation) == ["one", "two"]


def test_what_another_program_goes_on_with_is_not_lost(
    store: Store, path: Path, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    with Store.open(path) as other:
        other.delete_message(chain[1].id)
        extend(store, conversation, chain[3].id, "five")
    assert shown(store, conversation) == ["one", "two", "three", "four", "five"]


def test_what_another_program_shows_is_not_lost(
    store: Store, path: Path, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    with Store.open(path) as other:
        other.delete_message(chain[1].id)
        store.update_conversation(conversation.id, leaf_id=chain[2].id)
    assert shown(store, conversation) == ["one", "two", "three"]


def test_a_very_long_conversation_can_be_deleted(store: Store, path: Path, conversation: Conversation) -> None:
    first, *_ = extend(store, conversation, None, *["one"] * 1500)
    store.delete_message(first.id)
    store.close()
    assert rows(path) == 0


def test_a_message_is_deleted_once(store: Store, chain: list[StoredMessage]) -> None:
    store.delete_message(chain[0].id)
    with pytest.raises(StoreError, match="no message"):
        store.delete_message(chain[1].id)


def test_a_fork_has_copies_of_what_leads_to_a_message(
    store: Store, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    fork = store.fork(chain[1].id, "Foxes (fork)")
    copies = store.path(fork.id)
    assert [(each.role, each.text, each.token_ids) for each in copies] == [
        (each.role, each.text, each.token_ids) for each in chain[:2]
    ]
    assert fork.title == "Foxes (fork)" and not fork.auto_title and fork.leaf_id == copies[-1].id
    assert shown(store, conversation) == ["one", "two", "three", "four"]


def test_what_is_discarded_is_gone_for_good_with_replies_that_never_began(
    store: Store, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    [asked] = extend(store, conversation, chain[3].id, "refused")
    for status in ("failed", "stopped"):
        store.append_message(conversation.id, asked.id, "assistant", "", status=status)
    store.discard_message(asked.id)
    assert store.path(conversation.id) == chain
    assert not store.has_deleted(conversation.id) and store.search("refused") == []
    with pytest.raises(StoreError):
        store.message(asked.id)
    store.discard_message(asked.id)


def test_what_is_answered_is_not_discarded(
    store: Store, conversation: Conversation, chain: list[StoredMessage]
) -> None:
    store.discard_message(chain[2].id)
    assert store.path(conversation.id) == chain
    store.delete_message(chain[3].id)
    store.discard_message(chain[2].id)
    store.undelete(conversation.id)
    assert store.path(conversation.id) == chain

"""The format has versions: an older database is upgraded behind a backup, a newer one is left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from engine.api import SamplingParams
from kvchat.store import Store, StoreError
from kvchat.store.database import Database, migrations
from kvchat.store.search import segment

NEXT = [*migrations(), "ALTER TABLE tags ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';"]


def version(path: Path) -> int:
    return sqlite3.connect(path).execute("PRAGMA user_version").fetchone()[0]


def older_history(path: Path) -> str:
    """A database of the present version, which NEXT is one ahead of."""
    with Store.open(path) as store:
        conversation = store.create_conversation(title="Old times")
        store.append_message(conversation.id, None, "user", "remember this")
        store.update_conversation(conversation.id, tags=["past"])
    return conversation.id


def history_of_version_1(path: Path) -> None:
    """With replies that ended, were stopped while they waited, and were generated to the end after a wait."""
    connection = sqlite3.connect(path)
    connection.create_function("segment", 1, segment, deterministic=True)
    connection.executescript(migrations()[0])
    connection.execute("PRAGMA user_version = 1")
    sampling = msgspec.json.encode(SamplingParams()).decode()
    connection.execute(
        "INSERT INTO conversations VALUES (1, 'c', 'Old times', 1, 'assistant', '', 'smol', ?, 5, 5, 0, NULL)",
        (sampling,),
    )
    for number, (text, ttft, e2e) in enumerate([("quick", 0.5, 2.0), ("never began", None, 1.5)], 1):
        connection.execute(
            "INSERT INTO messages VALUES (?, 'c', ?, 'assistant', ?, x'', 'stopped', NULL, '', 'smol', 5, 'w')",
            (number, number - 1 or None, text),
        )
        connection.execute(
            "INSERT INTO message_metrics VALUES (?, 0.2, ?, 0.1, ?, 10.0, 100, 60, 15, 0)", (number, ttft, e2e)
        )
    connection.execute("UPDATE conversations SET leaf_id = 2")
    connection.commit()
    connection.close()


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.v*"))


@pytest.mark.parametrize("content", [None, b""], ids=["absent", "empty"])
def test_a_new_database_gets_the_present_version_and_no_backup(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with Store.open(path) as store:
        assert store.conversations() == []
    assert version(path) == len(migrations())
    assert backups(path) == []


def test_an_upgrade_keeps_everything_and_leaves_a_backup_named_with_the_version(path: Path) -> None:
    conversation_id = older_history(path)
    Database(path, NEXT).close()
    connection = sqlite3.connect(path)
    assert version(path) == len(NEXT)
    assert connection.execute("SELECT tag, colour FROM tags").fetchall() == [("past", "grey")]
    assert connection.execute("SELECT text FROM messages").fetchall() == [("remember this",)]
    [backup] = backups(path)
    assert backup.name.startswith(f"history.db.v{len(NEXT) - 1}-")
    with Store.open(backup) as store:
        assert store.conversation(conversation_id).tags == ("past",)
        assert [hit.conversation.id for hit in store.search("remember")] == [conversation_id]


def test_the_backup_holds_what_still_lies_in_the_write_ahead_log(path: Path) -> None:
    with Store.open(path) as store:
        conversation = store.create_conversation(title="not in the main file yet")
        Database(path, NEXT).close()
    [backup] = backups(path)
    with Store.open(backup) as store:
        assert store.conversations() == [conversation]


def test_a_failing_upgrade_changes_nothing(path: Path) -> None:
    conversation_id = older_history(path)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        Database(path, [*NEXT, "DROP TABLE tags; INSERT INTO nowhere VALUES (1);"])
    assert version(path) == len(NEXT) - 1
    with Store.open(path) as store:
        assert store.conversation(conversation_id).tags == ("past",)


def test_an_upgrade_that_would_break_a_reference_is_taken_back(path: Path) -> None:
    older_history(path)
    with pytest.raises(StoreError, match="2 rows refer to nothing"):
        Database(path, [*NEXT, "DELETE FROM conversations;"])
    with Store.open(path) as store:
        assert len(store.conversations()) == 1


def test_a_database_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    older_history(path)
    Database(path, NEXT).close()
    before = path.read_bytes()
    with pytest.raises(StoreError) as error:
        Store.open(path)
    assert str(error.value) == (
        f"{path}: written by a newer kvchat (version {len(NEXT)} of the format, this program knows {len(NEXT) - 1}): "
        "upgrade kvchat"
    )
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name)")
    before = path.read_bytes()
    with pytest.raises(StoreError) as error:
        Store.open(path)
    assert str(error.value) == f"{path}: a database of another program: move it away, or set XDG_DATA_HOME"
    assert path.read_bytes() == before


def test_replies_of_version_1_say_where_their_time_went_as_far_as_it_is_known(path: Path) -> None:
    history_of_version_1(path)
    with Store.open(path) as store:
        quick, never_began = store.path("c")
        assert (quick.metrics.queue_s, quick.metrics.ttft_s) == (0.2, 0.5)
        assert (quick.metrics.prefill_s, quick.metrics.decode_s) == pytest.approx((0.3, 1.5))
        assert (never_began.metrics.prefill_s, never_began.metrics.decode_s) == pytest.approx((1.3, 0))
        for message in (quick, never_began):
            assert message.divergence is None
            assert (message.metrics.preempted_s, message.metrics.evicted_tokens) == (0, 0)
        assert [hit.message.text for hit in store.search("began")] == ["never began"]
    [backup] = backups(path)
    assert version(backup) == 1

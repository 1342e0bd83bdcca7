"""The format has versions: an older database is upgraded behind a backup, a newer one is left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kvchat.store import Store, StoreError
from kvchat.store.database import Database, migrations

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

"""Reading the message tree of a conversation."""

from __future__ import annotations

from kvchat.store.database import Database
from kvchat.store.records import MESSAGE_COLUMNS, MESSAGE_TABLES, StoredMessage, message_from


def path_to(database: Database, message_id: int | None) -> list[StoredMessage]:
    """From the root to a message; empty for None, and when there is none of that id."""
    rows = database.rows(
        "WITH RECURSIVE branch (id, parent_id, height) AS ("
        " SELECT id, parent_id, 0 FROM messages WHERE id = ?"
        " UNION ALL"
        " SELECT m.id, m.parent_id, height + 1 FROM branch JOIN messages m ON m.id = branch.parent_id"
        f") SELECT {MESSAGE_COLUMNS} FROM branch JOIN ({MESSAGE_TABLES}) ON m.id = branch.id ORDER BY height DESC",
        message_id,
    )
    return [message_from(row) for row in rows]


def children(database: Database, message_id: int | None, conversation_id: str) -> list[StoredMessage]:
    """The messages below one, oldest first; below None, the roots."""
    rows = database.rows(
        f"SELECT {MESSAGE_COLUMNS} FROM {MESSAGE_TABLES} "
        "WHERE m.conversation_id = ? AND m.parent_id IS ? AND m.deletion IS NULL ORDER BY m.id",
        conversation_id,
        message_id,
    )
    return [message_from(row) for row in rows]


def tree(database: Database, conversation_id: str) -> dict[int | None, list[int]]:
    """The ids of the messages below each message that has any, oldest first; below None, the roots. A reply that failed
    or was stopped before its first word is not among them if another was asked for in its place, unless it is shown."""
    rows = database.rows(
        "SELECT m.id, m.parent_id FROM messages m JOIN conversations c ON c.id = m.conversation_id"
        " WHERE c.id = ? AND m.deletion IS NULL AND (m.id = c.leaf_id OR NOT (m.status IN ('failed', 'stopped')"
        "  AND m.text = '' AND EXISTS (SELECT 1 FROM messages other WHERE other.conversation_id = c.id"
        "   AND other.parent_id = m.parent_id AND other.id != m.id AND other.deletion IS NULL))) ORDER BY m.id",
        conversation_id,
    )
    below: dict[int | None, list[int]] = {}
    for row in rows:
        below.setdefault(row["parent_id"], []).append(row["id"])
    return below

"""Messages that are deleted and can be brought back until the program that deleted them ends.

A deletion marks a message and all that follows it, on every branch. Marked messages are in no answer of the store, but
they are in the database until `purge`. Every function works inside the caller's transaction.
"""

from __future__ import annotations

from sqlite3 import Connection

_BELOW = (
    "WITH RECURSIVE below (id) AS (SELECT id FROM messages WHERE id = ? UNION ALL SELECT m.id FROM below"
    " JOIN messages m ON m.parent_id = below.id AND m.conversation_id = ?) "
)
_ABOVE = (
    "WITH RECURSIVE above (id, parent_id) AS (SELECT id, parent_id FROM messages WHERE id = ? UNION ALL"
    " SELECT m.id, m.parent_id FROM above JOIN messages m ON m.id = above.parent_id) "
)


def delete(connection: Connection, message_id: int, instance: str) -> int:
    """Mark a message and what follows it; the number of the deletion, 0 if it was not there. If the branch that is
    shown was among it, the newest one that is left below the same parent is shown, or what led to the message."""
    found = connection.execute(
        "SELECT conversation_id, parent_id FROM messages WHERE id = ? AND deletion IS NULL", (message_id,)
    ).fetchone()
    if found is None:
        return 0
    conversation_id, parent_id = found
    [number] = connection.execute(
        "SELECT coalesce(max(deletion), 0) + 1 FROM messages WHERE deletion IS NOT NULL"
    ).fetchone()
    connection.execute(
        f"{_BELOW} UPDATE messages SET deletion = ?, deleted_by = ?"
        " WHERE deletion IS NULL AND id IN (SELECT id FROM below)",
        (message_id, conversation_id, number, instance),
    )
    if parent_id is None:
        newest = connection.execute(
            "SELECT max(id) FROM messages WHERE conversation_id = ? AND deletion IS NULL", (conversation_id,)
        )
    else:
        newest = connection.execute(
            f"{_BELOW} SELECT max(id) FROM messages WHERE deletion IS NULL AND id IN (SELECT id FROM below)",
            (parent_id, conversation_id),
        )
    [leaf_id] = newest.fetchone()
    connection.execute(
        "UPDATE conversations SET leaf_id = ? WHERE id = ? AND leaf_id IN (SELECT id FROM messages WHERE deletion = ?)",
        (leaf_id, conversation_id, number),
    )
    return number


def discard(connection: Connection, message_id: int, instance: str) -> None:
    """Remove a message for good, with the replies to it that failed or were stopped before their first word; if
    anything else follows it, also a deleted message, it stays. Shown is then what `delete` shows."""
    [owner] = connection.execute("SELECT conversation_id FROM messages WHERE id = ?", (message_id,)).fetchone() or [""]
    followed = connection.execute(
        f"{_BELOW} SELECT 1 FROM messages WHERE id IN (SELECT id FROM below) AND id != ?"
        " AND (text != '' OR status = 'streaming')",
        (message_id, owner, message_id),
    ).fetchone()
    if followed is None and (number := delete(connection, message_id, instance)):
        connection.execute("DELETE FROM messages WHERE deletion = ?", (number,))


def undelete(connection: Connection, conversation_id: str, instance: str) -> None:
    """Take the last deletion back, and show its newest branch."""
    [number] = connection.execute(
        "SELECT max(deletion) FROM messages WHERE conversation_id = ? AND deleted_by = ?", (conversation_id, instance)
    ).fetchone()
    if number is None:
        return
    [leaf_id] = connection.execute("SELECT max(id) FROM messages WHERE deletion = ?", (number,)).fetchone()
    connection.execute("UPDATE messages SET deletion = NULL, deleted_by = NULL WHERE deletion = ?", (number,))
    revive(connection, leaf_id)
    connection.execute("UPDATE conversations SET leaf_id = ? WHERE id = ?", (leaf_id, conversation_id))


def revive(connection: Connection, message_id: int | None) -> None:
    """Bring back what leads to a message that is in use: another instance may go on below what this one deleted."""
    connection.execute(
        f"{_ABOVE} UPDATE messages SET deletion = NULL, deleted_by = NULL"
        " WHERE deletion IS NOT NULL AND id IN (SELECT id FROM above)",
        (message_id,),
    )


def purge(connection: Connection, which: str, values: list[str]) -> None:
    """Remove for good what the instances for which `which` holds deleted, and conversations of which nothing is left.
    What some instance shows is in use, and stays."""
    shown = connection.execute(
        "SELECT c.leaf_id FROM messages m CROSS JOIN conversations c ON c.id = m.conversation_id AND c.leaf_id = m.id"
        f" WHERE m.deletion IS NOT NULL AND m.{which}",
        values,
    )
    for [leaf_id] in shown.fetchall():
        revive(connection, leaf_id)
    marked = connection.execute(
        f"SELECT id, conversation_id FROM messages WHERE deletion IS NOT NULL AND {which}", values
    ).fetchall()
    # The last ones first: a deletion that cascades through a long conversation would go too deep for SQLite.
    last_first = sorted(((message_id,) for message_id, _ in marked), reverse=True)
    connection.executemany("DELETE FROM messages WHERE id = ?", last_first)
    connection.executemany(
        "DELETE FROM conversations WHERE id = ? AND NOT EXISTS (SELECT 1 FROM messages WHERE conversation_id = ?)"
        " AND id NOT IN (SELECT conversation_id FROM open_tabs)",
        {(conversation_id, conversation_id) for _, conversation_id in marked},
    )

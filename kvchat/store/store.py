"""The conversation store."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Self

import msgspec
from msgspec import UNSET, UnsetType

from engine.api import Divergence, FinishReason, Metrics, SamplingParams
from kvchat import paths
from kvchat.store import deletion
from kvchat.store.copies import ConversationCopy, add_copy, copy_of, fork_of
from kvchat.store.database import Database, insert, update
from kvchat.store.errors import StoreError, unwritable
from kvchat.store.instance import Instance, opening
from kvchat.store.records import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    MESSAGE_TABLES,
    Conversation,
    Role,
    SearchHit,
    Status,
    StoredMessage,
    Tab,
    as_json,
    conversation_from,
    message_from,
    pack_token_ids,
)
from kvchat.store.search import all_tags, search
from kvchat.store.tree import children, path_to, tree

DEFAULT_SAMPLING = SamplingParams()


class Store:
    """Everything that is kept of the conversations. Every change is committed when its call returns.

    A store belongs to the thread that opened it, which may be the UI's: a call takes well under a millisecond, a few
    when the disk is busy; a search of a large history takes some tens. Several programs may have the same history open.
    Every method raises StoreError, with one line fit to show, when the database cannot be read or written, or what it
    should return or change is gone.
    """

    def __init__(self, database: Database, instance: Instance) -> None:
        self._database = database
        self._instance = instance
        self._closed = False

    @classmethod
    def open(cls, path: Path | None = None) -> Self:
        """Open the history at `path` (default: the user's), create it or bring it to this version.

        Messages that a killed program left streaming become stopped, with the text they had; those that it deleted are
        gone.
        """
        path = path or paths.database_file()
        locks = path.with_name(path.name + ".locks")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            locks.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise unwritable(error, path.parent) from error
        with opening(locks):
            database = Database(path)
            store = cls(database, Instance(locks))
            store._settle_for_the_dead()
        return store

    def close(self) -> None:
        """Release the history. A message of this instance that still streams becomes stopped, and what it deleted is
        gone for good. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            with self._database.transaction() as connection:
                _settle(connection, "= ?", [self._instance.id])
        finally:
            self._database.close()
            self._instance.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Conversations

    def create_conversation(
        self,
        *,
        title: str = "",
        persona: str = "",
        system_prompt: str = "",
        model: str = "",
        sampling: SamplingParams = DEFAULT_SAMPLING,
    ) -> Conversation:
        """Begin a conversation without messages. One without a title may be titled by the program."""
        conversation_id, now = str(uuid.uuid4()), time.time()
        row = {
            "id": conversation_id,
            "title": title,
            "auto_title": not title,
            "persona": persona,
            "system_prompt": system_prompt,
            "model": model,
            "sampling": as_json(sampling),
            "created_at": now,
            "updated_at": now,
        }
        with self._database.transaction() as connection:
            insert(connection, "conversations", row)
        return self.conversation(conversation_id)

    def conversation(self, conversation_id: str) -> Conversation:
        rows = self._database.rows(
            f"SELECT {CONVERSATION_COLUMNS} FROM conversations c WHERE c.id = ?", conversation_id
        )
        if not rows:
            raise _no_conversation()
        return conversation_from(rows[0])

    def conversations(self, include_archived: bool = False) -> list[Conversation]:
        """All conversations, the one last written to first."""
        rows = self._database.rows(
            f"SELECT {CONVERSATION_COLUMNS} FROM conversations c WHERE c.archived <= ? "
            "ORDER BY c.updated_at DESC, c.number DESC",
            include_archived,
        )
        return [conversation_from(row) for row in rows]

    def recent_conversations(self, limit: int) -> tuple[list[Conversation], int]:
        """At most `limit` conversations that have a message and are not archived, the one last written to first, and
        how many more there are."""
        written = "FROM conversations c WHERE NOT c.archived AND c.leaf_id IS NOT NULL"
        rows = self._database.rows(
            f"SELECT {CONVERSATION_COLUMNS} {written} ORDER BY c.updated_at DESC, c.number DESC LIMIT ?", limit
        )
        [total] = self._database.rows(f"SELECT count(*) AS total {written}")
        return [conversation_from(row) for row in rows], max(0, total["total"] - limit)

    def last_conversation(self) -> Conversation:
        """The one last written to, not archived. Raises StoreError when there is none."""
        found = next((each for each in self.conversations() if each.leaf_id is not None), None)
        if found is None:
            raise StoreError("there is no conversation yet: begin one with kvchat")
        return found

    def update_conversation(
        self,
        conversation_id: str,
        *,
        title: str | UnsetType = UNSET,
        auto_title: bool | UnsetType = UNSET,
        persona: str | UnsetType = UNSET,
        system_prompt: str | UnsetType = UNSET,
        model: str | UnsetType = UNSET,
        sampling: SamplingParams | UnsetType = UNSET,
        archived: bool | UnsetType = UNSET,
        leaf_id: int | None | UnsetType = UNSET,
        tags: Iterable[str] | UnsetType = UNSET,
    ) -> Conversation:
        """Change what is given and return the result. A new title is the user's own unless `auto_title` says otherwise;
        `leaf_id` shows another branch."""
        if title is not UNSET and auto_title is UNSET:
            auto_title = False
        changes = _given(
            title=title,
            auto_title=auto_title,
            persona=persona,
            system_prompt=system_prompt,
            model=model,
            sampling=UNSET if sampling is UNSET else as_json(sampling),
            archived=archived,
            leaf_id=leaf_id,
        )
        with self._database.transaction() as connection:
            if changes and not update(connection, "conversations", conversation_id, changes):
                raise _no_conversation()
            if tags is not UNSET:
                connection.execute("DELETE FROM tags WHERE conversation_id = ?", (conversation_id,))
                connection.executemany("INSERT INTO tags VALUES (?, ?)", [(conversation_id, tag) for tag in set(tags)])
        return self.conversation(conversation_id)

    def delete_conversation(self, conversation_id: str) -> None:
        """Delete a conversation with its messages and its tab, for good."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))

    def copy_of(self, conversation_id: str) -> ConversationCopy:
        """All of a conversation, for another history."""
        return copy_of(self._database, self.conversation(conversation_id))

    def fork(self, message_id: int, title: str) -> Conversation:
        """Begin a conversation with copies of the messages that lead to one, token ids included, and of the settings.
        It goes on where those end."""
        path = path_to(self._database, message_id)
        if not path:
            raise _no_message(message_id)
        copy = fork_of(self.conversation(path[-1].conversation_id), path, title)
        self.add_copies([copy])
        return self.conversation(copy.id)

    def add_copies(self, copies: Iterable[ConversationCopy]) -> list[str]:
        """Add conversations, all or none, and return the ids of the new ones: one that is here stays as it is."""
        with self._database.transaction() as connection:
            return [copy.id for copy in copies if add_copy(connection, copy, self._instance.id)]

    # Messages

    def append_message(
        self,
        conversation_id: str,
        parent_id: int | None,
        role: Role,
        text: str,
        *,
        status: Status = "complete",
        token_ids: Sequence[int] = (),
    ) -> StoredMessage:
        """Add a message below `parent_id` (None: a new root) and make it the leaf that is shown.

        Editing, regenerating and forking are this: another child below an older message.
        """
        now = time.time()
        row = {
            "conversation_id": conversation_id,
            "parent_id": parent_id,
            "role": role,
            "text": text,
            "token_ids": pack_token_ids(token_ids),
            "status": status,
            "model": self.conversation(conversation_id).model,
            "created_at": now,
            "writer": self._instance.id,
        }
        with self._database.transaction() as connection:
            deletion.revive(connection, parent_id)
            message_id = insert(connection, "messages", row)
            update(connection, "conversations", conversation_id, {"leaf_id": message_id, "updated_at": now})
        return self.message(message_id)

    def update_message(
        self,
        message_id: int,
        *,
        text: str | UnsetType = UNSET,
        token_ids: Sequence[int] | UnsetType = UNSET,
        status: Status | UnsetType = UNSET,
        finish_reason: FinishReason | None | UnsetType = UNSET,
        error: str | UnsetType = UNSET,
        divergence: Divergence | None | UnsetType = UNSET,
    ) -> None:
        """Change what is given; the running reply is drafted this way."""
        changes = _given(
            text=text,
            token_ids=UNSET if token_ids is UNSET else pack_token_ids(token_ids),
            status=status,
            finish_reason=finish_reason,
            error=error,
            divergence=UNSET if divergence is UNSET else as_json(divergence),
            writer=self._instance.id,
        )
        with self._database.transaction() as connection:
            if not update(connection, "messages", message_id, changes):
                raise _no_message(message_id)

    def save_metrics(self, message_id: int, metrics: Metrics) -> None:
        """Keep what a reply cost, in place of what was kept before."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM message_metrics WHERE message_id = ?", (message_id,))
            insert(connection, "message_metrics", {"message_id": message_id, **msgspec.structs.asdict(metrics)})

    def message(self, message_id: int) -> StoredMessage:
        rows = self._database.rows(f"SELECT {MESSAGE_COLUMNS} FROM {MESSAGE_TABLES} WHERE m.id = ?", message_id)
        if not rows:
            raise _no_message(message_id)
        return message_from(rows[0])

    def path(self, conversation_id: str) -> list[StoredMessage]:
        """The branch that is shown, from its root to the conversation's leaf."""
        rows = self._database.rows("SELECT leaf_id FROM conversations WHERE id = ?", conversation_id)
        return path_to(self._database, rows[0]["leaf_id"]) if rows else []

    def children(self, message_id: int | None, conversation_id: str) -> list[StoredMessage]:
        """The messages below one, oldest first; below None, the roots."""
        return children(self._database, message_id, conversation_id)

    def siblings(self, message_id: int) -> list[StoredMessage]:
        """A message and its alternatives below the same parent, oldest first."""
        message = self.message(message_id)
        return self.children(message.parent_id, message.conversation_id)

    def tree(self, conversation_id: str) -> dict[int | None, list[int]]:
        """The ids of the messages below each one, on all branches; see kvchat.store.tree."""
        return tree(self._database, conversation_id)

    def delete_message(self, message_id: int) -> None:
        """Delete a message with all that follows it, on every branch. Until this store is closed it can be brought
        back. Shown is then the newest branch that is left below the same parent, or what led to the message."""
        with self._database.transaction() as connection:
            if not deletion.delete(connection, message_id, self._instance.id):
                raise _no_message(message_id)

    def discard_message(self, message_id: int) -> None:
        """Remove a message for good, with the replies to it that never began; nothing if anything else follows it."""
        with self._database.transaction() as connection:
            deletion.discard(connection, message_id, self._instance.id)

    def has_deleted(self, conversation_id: str) -> bool:
        """Whether there is a deletion in a conversation that can be taken back."""
        sql = "SELECT 1 FROM messages WHERE conversation_id = ? AND deleted_by = ? AND deletion IS NOT NULL LIMIT 1"
        return bool(self._database.rows(sql, conversation_id, self._instance.id))

    def undelete(self, conversation_id: str) -> None:
        """Take the last deletion in a conversation back, and show what it took; nothing if there is none."""
        with self._database.transaction() as connection:
            deletion.undelete(connection, conversation_id, self._instance.id)

    # Tabs

    @property
    def owns_tabs(self) -> bool:
        """Whether the saved tabs are this program's. The first one that asks gets them until it closes; for another one
        there are none, and what it saves is not kept."""
        return self._instance.owns_tabs

    def open_tabs(self) -> list[Tab]:
        if not self.owns_tabs:
            return []
        rows = self._database.rows("SELECT conversation_id, active, draft FROM open_tabs ORDER BY position")
        return [Tab(row["conversation_id"], bool(row["active"]), row["draft"]) for row in rows]

    def save_tabs(self, tabs: Sequence[Tab]) -> None:
        """Keep the tabs, one a conversation, in this order; one whose conversation is gone by now is left out."""
        if not self.owns_tabs:
            return
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM open_tabs")
            connection.executemany(
                "INSERT INTO open_tabs SELECT ?, id, ?, ? FROM conversations WHERE id = ?",
                [(position, tab.active, tab.draft, tab.conversation_id) for position, tab in enumerate(tabs)],
            )

    def save_draft(self, conversation_id: str, text: str) -> None:
        """Keep what stands in the composer of an open tab."""
        if not self.owns_tabs:
            return
        with self._database.transaction() as connection:
            connection.execute("UPDATE open_tabs SET draft = ? WHERE conversation_id = ?", (text, conversation_id))

    # Search

    def search(self, query: str, limit: int = 50) -> list[SearchHit]:
        """Titles, then messages of all branches, with every word of `query`, the newest first.

        The last word may be unfinished. #NAME asks for conversations with a tag that begins so.
        """
        return search(self._database, query, limit)

    def tags(self) -> list[str]:
        """All that any conversation has."""
        return all_tags(self._database)

    def _settle_for_the_dead(self) -> None:
        living = self._instance.living()
        with self._database.transaction() as connection:
            _settle(connection, f"NOT IN ({', '.join('?' * len(living))})", living)


def _settle(connection: Connection, which: str, values: list[str]) -> None:
    """End what the instances for which `which` holds had begun."""
    connection.execute(f"UPDATE messages SET status = 'stopped' WHERE status = 'streaming' AND writer {which}", values)
    deletion.purge(connection, f"deleted_by {which}", values)


def _given(**changes: object) -> dict[str, object]:
    return {name: value for name, value in changes.items() if value is not UNSET}


def _no_conversation() -> StoreError:
    return StoreError("this conversation is not in the history any more: was it deleted elsewhere?")


def _no_message(message_id: int) -> StoreError:
    return StoreError(f"no message {message_id}: was its conversation deleted elsewhere?")

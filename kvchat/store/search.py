"""Full-text search over titles and messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvchat.store.records import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    MESSAGE_TABLES,
    Conversation,
    SearchHit,
    StoredMessage,
    conversation_from,
    message_from,
)

if TYPE_CHECKING:
    from kvchat.store.database import Database

_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_BREAK = "\u200b"
_START, _END = "\x02", "\x03"
_SNIPPET_TOKENS = 24


def segment(text: str) -> str:
    """Put an invisible break around each Chinese and Japanese character.

    The index knows only words between separators, and would take a whole sentence of a script without spaces for one
    word. A phrase of single characters finds any part of it.
    """
    return _UNSPACED.sub(rf"{_BREAK}\g<0>{_BREAK}", text)


def fts_query(words: str) -> str:
    """What a user typed as an FTS5 expression: all words must occur, the last one may be unfinished.

    Each word is quoted, so nothing in it is syntax.
    """
    quoted = ['"' + segment(word).replace('"', '""') + '"' for word in words.replace("\0", " ").split()]
    return " ".join(quoted) + "*" if quoted else ""


def search(database: Database, words: str, limit: int) -> list[SearchHit]:
    """Conversations whose title matches, then messages, the newest first; for nothing but tags the conversations.

    By time and not by rank: SQLite walks the index in this order and stops at the limit; a rank needs every match.
    """
    tags, query = _tags_and_query(database, words)
    if not tags and not query:
        return []
    beginnings = [tag for tag in tags for _ in range(2)]
    if not query:
        rows = database.rows(
            f"SELECT {CONVERSATION_COLUMNS}, c.title AS marked FROM conversations c "
            f"WHERE TRUE{_tagged('c.id', tags)} ORDER BY c.updated_at DESC LIMIT ?",
            *(*beginnings, limit),
        )
        return [_hit(conversation_from(row), None, row["marked"]) for row in rows]
    titles = database.rows(
        f"SELECT {CONVERSATION_COLUMNS}, highlight(title_index, 0, ?, ?) AS marked FROM title_index "
        "JOIN conversations c ON c.number = title_index.rowid "
        f"WHERE title_index MATCH ?{_tagged('c.id', tags)} ORDER BY title_index.rowid DESC LIMIT ?",
        *(_START, _END, query, *beginnings, limit),
    )
    messages = database.rows(
        f"SELECT {MESSAGE_COLUMNS}, snippet(message_index, 0, ?, ?, '…', {_SNIPPET_TOKENS}) AS marked "
        f"FROM message_index JOIN ({MESSAGE_TABLES}) ON m.id = message_index.rowid "
        f"WHERE message_index MATCH ? AND m.deletion IS NULL{_tagged('m.conversation_id', tags)} "
        "ORDER BY message_index.rowid DESC LIMIT ?",
        *(_START, _END, query, *beginnings, limit - len(titles)),
    )
    hits = [_hit(conversation_from(row), None, row["marked"]) for row in titles]
    for row in messages:
        message = message_from(row)
        [conversation] = database.rows(
            f"SELECT {CONVERSATION_COLUMNS} FROM conversations c WHERE c.id = ?", message.conversation_id
        )
        hits.append(_hit(conversation_from(conversation), message, row["marked"]))
    return hits


def all_tags(database: Database) -> list[str]:
    return [row["tag"] for row in database.rows("SELECT DISTINCT tag FROM tags ORDER BY tag")]


def _tags_and_query(database: Database, words: str) -> tuple[list[str], str]:
    """The beginnings of tags that `words` ask for, and the others as an FTS5 expression. What only looks like a tag is
    a word: somebody may look for "#include"."""
    known, tags, rest = all_tags(database), [], []
    for word in words.split():
        name = word.removeprefix("#").lower()
        if word.startswith("#") and name and any(tag.startswith(name) for tag in known):
            tags.append(name)
        else:
            rest.append(word)
    return tags, fts_query(" ".join(rest))


def _tagged(column: str, tags: list[str]) -> str:
    """That a conversation has them all, each given twice."""
    return f" AND {column} IN (SELECT conversation_id FROM tags WHERE substr(tag, 1, length(?)) = ?)" * len(tags)


def _hit(conversation: Conversation, message: StoredMessage | None, marked: str) -> SearchHit:
    """Turn the index's marks around the matches into offsets."""
    snippet, spans = "", []
    for part in re.split(f"(?={_START})", marked.replace(_BREAK, "")):
        match, end, rest = part.removeprefix(_START).partition(_END)
        if end:
            spans.append((len(snippet), len(snippet) + len(match)))
        snippet += match + rest
    return SearchHit(conversation=conversation, message=message, snippet=snippet, spans=tuple(spans))

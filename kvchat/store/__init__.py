"""The history on disk: conversations as message trees, their metrics, the open tabs, and search over all of it."""

from __future__ import annotations

from kvchat.store.copies import ConversationCopy, MessageCopy
from kvchat.store.errors import StoreError
from kvchat.store.records import Conversation, Role, SearchHit, Status, StoredMessage, Tab
from kvchat.store.store import Store

__all__ = [
    "Conversation",
    "ConversationCopy",
    "MessageCopy",
    "Role",
    "SearchHit",
    "Status",
    "Store",
    "StoreError",
    "StoredMessage",
    "Tab",
]

"""What the readers of other programs' exports share."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import UUID, uuid5

import msgspec
from msgspec.structs import replace

from engine.api import SamplingParams
from engine.errors import InvalidRequest
from kvchat.conversation import title_of
from kvchat.exchange.errors import ExchangeError
from kvchat.store import ConversationCopy, MessageCopy
from kvchat.store.copies import LATEST

T = TypeVar("T")

ForeignTime = Annotated[float, msgspec.Meta(le=LATEST)]
"""Seconds since the epoch; `conversation` moves what is before it."""

_NAMESPACE = UUID("5a0f4f43-6f0e-5c1b-9d57-3b0d5a7d6c11")


@dataclass(slots=True)
class Node:
    """A node of a foreign message tree; one without a message is left out, and what is below it moves up."""

    parent: str | None
    message: MessageCopy | None
    """Its `parent` does not count."""


def convert(value: object, kind: type[T], place: str) -> T:
    """`value` as a `kind`. Raises ExchangeError, which names the place."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise ExchangeError(f"{place}{path.rstrip('`')}: {problem[:1].lower()}{problem[1:]}") from error
    except InvalidRequest as error:
        raise ExchangeError(f"{place}.sampling: {error}") from error


def grow(nodes: Mapping[str, Node], place: str) -> tuple[tuple[MessageCopy, ...], dict[str | None, int | None]]:
    """The messages of a tree, parents first, and where each node went: the index of its message, or of the nearest
    one above it. A parent that is not among the nodes is none. Raises ExchangeError for a cycle."""
    parent_of = {key: node.parent if node.parent in nodes else None for key, node in nodes.items()}
    children: dict[str | None, list[str]] = defaultdict(list)
    for key, parent in parent_of.items():
        children[parent].append(key)
    messages: list[MessageCopy] = []
    index_of: dict[str | None, int | None] = {None: None}
    waiting = children[None][::-1]
    while waiting:
        key = waiting.pop()
        above, message = index_of[parent_of[key]], nodes[key].message
        index_of[key] = above if message is None else len(messages)
        if message is not None:
            messages.append(replace(message, parent=above))
        waiting += children[key][::-1]
    if stray := [key for key in nodes if key not in index_of]:
        raise ExchangeError(f"{place}: message '{stray[0]}' is below itself")
    return tuple(messages), index_of


def conversation(
    source: str,
    key: str | None,
    messages: tuple[MessageCopy, ...],
    leaf: int | None,
    *,
    sampling: SamplingParams,
    title: str | None = None,
    system_prompt: str = "",
    model: str = "",
    created_at: float | None = None,
    updated_at: float | None = None,
) -> ConversationCopy:
    """A conversation of another program. Its id comes from `key`, its id there, or else from what it says, so that
    the same one always has the same id. Without a `leaf` the last message is shown; times that the history cannot
    hold become the nearest that it can."""
    if key is None:
        said = msgspec.json.encode([(system_prompt, title), [(message.role, message.text) for message in messages]])
        key = hashlib.sha256(said).hexdigest()
    title = " ".join((title or "").split())
    first = next((message.text for message in messages if message.role == "user"), "")
    messages = tuple(replace(message, created_at=_clamped(message.created_at)) for message in messages)
    newest = max((message.created_at for message in messages), default=time.time())
    return ConversationCopy(
        id=str(uuid5(_NAMESPACE, f"{source}:{key}")),
        title=title or title_of(first),
        auto_title=not title,
        system_prompt=system_prompt,
        model=model,
        sampling=sampling,
        created_at=newest if created_at is None else _clamped(created_at),
        updated_at=newest if updated_at is None else _clamped(updated_at),
        leaf=leaf,
        messages=messages,
    )


def _clamped(time: float) -> float:
    return min(max(time, 0.0), LATEST)


def text_of(part: Any) -> str:
    """The text of one part of a message, or what stands for a part that is none."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    if isinstance(part.get("text"), str):
        return part["text"]
    kind = str(part.get("content_type") or part.get("type") or "")
    return "[image]" if "image" in kind else ""

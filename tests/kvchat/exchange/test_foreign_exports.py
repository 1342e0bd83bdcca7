"""What other programs export becomes conversations of this one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.api import SamplingParams
from kvchat.exchange import ExchangeError, read_conversations, render
from kvchat.store import ConversationCopy, Store

SAMPLING = SamplingParams(temperature=0.3)


def read(data: Any) -> list[ConversationCopy]:
    return read_conversations(json.dumps(data).encode(), SAMPLING)


def shown(conversation: ConversationCopy) -> list[tuple[str, str]]:
    """Role and text of the branch that is shown."""
    branch, index = [], conversation.leaf
    while index is not None:
        message = conversation.messages[index]
        branch.append((message.role, message.text))
        index = message.parent
    return branch[::-1]


def node(parent: str | None, role: str = "", *parts: Any, kind: str = "text", **message: Any) -> dict[str, Any]:
    content = {"content_type": kind, "parts": list(parts)}
    return {
        "parent": parent,
        "children": [],
        "message": {"author": {"role": role, "name": None}, "content": content, **message} if role else None,
    }


CHATGPT = {
    "title": "Trip to  Oslo",
    "create_time": 1700000000.5,
    "update_time": 1700000100.25,
    "conversation_id": "6553f1c4-0000-800f-8000-000000000000",
    "default_model_slug": "gpt-4o",
    "current_node": "b2",
    "mapping": {
        "b2": node("u2", "assistant", "By train.", create_time=1700000090.0, metadata={"model_slug": "gpt-4o-mini"}),
        "root": node(None),
        "sys": node("root", "system", "You travel slowly."),
        "u1": node("sys", "user", "How do I get there?", create_time=1700000010.0),
        "think": node("u1", "assistant", "hmm", kind="thoughts"),
        "call": node("think", "assistant", "search('Oslo')", recipient="browser"),
        "tool": node("call", "tool", "results"),
        "a1": node("tool", "assistant", "By plane.", {"content_type": "image_asset_pointer"}, kind="multimodal_text"),
        "u2": node("sys", "user", {"content_type": "audio_transcription", "text": "And slowly?"}, None),
    },
}


def test_the_tree_of_chatgpt_keeps_its_branches_and_loses_what_the_user_never_saw() -> None:
    [conversation] = read([CHATGPT])
    assert (conversation.title, conversation.auto_title) == ("Trip to Oslo", False)
    assert (conversation.created_at, conversation.updated_at) == (1700000000.5, 1700000100.25)
    assert (conversation.system_prompt, conversation.model) == ("You travel slowly.", "gpt-4o")
    assert conversation.sampling == SAMPLING
    assert shown(conversation) == [("user", "And slowly?"), ("assistant", "By train.")]
    assert conversation.messages[conversation.leaf or 0].model == "gpt-4o-mini"
    others = [
        message for message in conversation.messages if message.text in ("How do I get there?", "By plane.\n\n[image]")
    ]
    assert [message.parent for message in others] == [None, conversation.messages.index(others[0])]
    assert len(conversation.messages) == 4


def test_a_current_node_that_is_left_out_is_the_message_above_it() -> None:
    [conversation] = read([CHATGPT | {"current_node": "tool"}])
    assert shown(conversation) == [("user", "How do I get there?")]


def test_the_messages_of_claude_are_read_with_their_attachments() -> None:
    [conversation] = read(
        [
            {
                "uuid": "c1",
                "name": "",
                "created_at": "2025-03-01T10:00:00.000000Z",
                "updated_at": "2025-03-01T10:05:00.000000Z",
                "account": {"uuid": "x"},
                "chat_messages": [
                    {
                        "uuid": "m1",
                        "sender": "human",
                        "text": "Read this.",
                        "created_at": "2025-03-01T10:00:00Z",
                        "attachments": [{"file_name": "a.txt", "extracted_content": "The sea."}],
                        "parent_message_uuid": "00000000-0000-4000-8000-000000000000",
                    },
                    {
                        "uuid": "m2",
                        "sender": "assistant",
                        "text": "",
                        "content": [{"type": "text", "text": "It is short."}, {"type": "tool_use", "name": "x"}],
                        "created_at": "2025-03-01T10:01:00Z",
                    },
                ],
            }
        ]
    )
    assert conversation.title == "Read this." and conversation.auto_title
    assert shown(conversation) == [("user", "Read this.\n\na.txt:\n\nThe sea."), ("assistant", "It is short.")]
    assert conversation.created_at == 1740823200


@given(st.tuples(*[st.datetimes(timezones=st.just(UTC) | st.none())] * 3))
@example((datetime.min, datetime.min, datetime.max))
def test_what_came_with_any_dates_can_be_exported_and_imported(dates: tuple[datetime, datetime, datetime]) -> None:
    written, began, changed = (date.isoformat() + ("Z" if date.tzinfo is None else "") for date in dates)
    message = {"uuid": "m", "sender": "human", "text": "When?", "created_at": written}
    found = read([{"uuid": "c", "created_at": began, "updated_at": changed, "chat_messages": [message]}])
    assert read_conversations(render(found, "json").encode(), SAMPLING) == found


def test_a_date_before_1970_becomes_that() -> None:
    [conversation] = read([CHATGPT | {"create_time": -62135596800.0}])
    assert conversation.created_at == 0


def test_a_current_node_that_is_missing_means_the_last_message() -> None:
    [conversation] = read([CHATGPT | {"current_node": "gone"}])
    assert conversation.leaf == len(conversation.messages) - 1


MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "Who are you?"}]},
    {"role": "assistant", "content": "A model."},
]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(MESSAGES),
        json.dumps(MESSAGES, indent=2),
        json.dumps({"messages": MESSAGES}),
        json.dumps([{"messages": MESSAGES}]),
        "\n".join(map(json.dumps, MESSAGES)),
        "\r\n".join(map(json.dumps, MESSAGES)) + "\r\n\r\n",
        "\ufeff" + json.dumps({"messages": MESSAGES, "other": 1}) + "\n",
    ],
)
def test_plain_messages_are_read_as_one_conversation(content: str) -> None:
    [conversation] = read_conversations(content.encode(), SAMPLING)
    assert conversation.system_prompt == "Be kind."
    assert shown(conversation) == [("user", "Who are you?"), ("assistant", "A model.")]
    assert conversation.title == "Who are you?"


def test_lines_of_conversations_are_one_conversation_each() -> None:
    lines = [json.dumps({"messages": [{"role": "user", "content": text}]}) for text in ("one", "two")]
    found = read_conversations("\n".join(lines).encode(), SAMPLING)
    assert [conversation.title for conversation in found] == ["one", "two"]


@pytest.mark.parametrize("data", [[CHATGPT], MESSAGES], ids=["with an id", "without one"])
def test_importing_an_export_of_another_program_twice_adds_it_once(data: Any, store: Store) -> None:
    assert len(store.add_copies(read(data))) == 1
    assert store.add_copies(read(data)) == []


def test_half_an_emoji_becomes_a_mark_that_can_be_stored(store: Store) -> None:
    conversations = read_conversations(b'[{"role": "user", "content": "\\ud83d! \\ud83d\\ude00"}]', SAMPLING)
    [conversation_id] = store.add_copies(conversations)
    assert store.path(conversation_id)[0].text == "\ufffd! 😀"


def test_a_conversation_without_messages_is_left_out() -> None:
    assert len(read([CHATGPT | {"mapping": {}}, CHATGPT])) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "line 1, column 1: not valid JSON: Expecting value"),
        (b'{"messages": [\n  1,\n]}', "line 3, column 1: not valid JSON: "),
        (b'{"role": "user", "content": "x"}\n{"role"', "line 2, column 8: not valid JSON: "),
        (b'{"a": "\xff"}', "byte 7: not valid UTF-8"),
        (b"[NaN]", "not valid JSON: it holds the number NaN"),
        (b"[" * 100_000, "not usable: lists or objects are nested too deeply"),
        (b"[" + b"9" * 5000 + b"]", "not usable: it holds a number with thousands of digits"),
        (b"[]", "it holds no message"),
        (b'[{"messages": []}]', "it holds no message"),
        (b"3", "entry 1: no conversation of a known kind"),
        (b'[{"mapping": {}}, {"x": 1}]', "entry 2: no conversation of a known kind"),
        (b'[{"mapping": {"a": {"message": {"author": {}}}}}]', "entry 1.mapping[...].message.author: object missing"),
        (
            b'[{"messages": [{"role": "pirate", "content": ""}]}]',
            "entry 1.messages[0].role: invalid enum value 'pirate'",
        ),
        (b'[{"chat_messages": [], "created_at": "soon"}]', "entry 1.created_at: invalid RFC3339"),
        (b'[{"mapping": {"a": {"parent": "b"}, "b": {"parent": "a"}}}]', "entry 1: message 'a' is below itself"),
        (b'[{"mapping": {}, "create_time": 1e999}]', "entry 1.create_time: expected `float` <= "),
    ],
)
def test_a_file_that_cannot_be_read_says_where(content: bytes, problem: str) -> None:
    with pytest.raises(ExchangeError) as error:
        read_conversations(content, SAMPLING)
    assert str(error.value).startswith(problem) and "\n" not in str(error.value)

"""Markdown and text, and how a file is written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kvchat.exchange import ExchangeError, format_of, render, save
from kvchat.store import ConversationCopy, Store


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-1")
    time.tzset()


@pytest.fixture
def conversation(store: Store, berlin: None) -> ConversationCopy:
    made = store.create_conversation(title="Boats", persona="coder", system_prompt="Be brief.", model="smol")
    question = store.append_message(made.id, None, "user", "Which one?\n")
    store.append_message(made.id, question.id, "assistant", "Another branch")
    reply = store.append_message(made.id, question.id, "assistant", "```\nthe red one", status="stopped")
    asked = store.append_message(made.id, reply.id, "user", "Why?")
    failed = store.append_message(made.id, asked.id, "assistant", "", status="failed")
    store.update_message(failed.id, error="the engine stopped")
    copy = store.copy_of(made.id)
    return ConversationCopy(**{name: getattr(copy, name) for name in copy.__struct_fields__} | {"updated_at": 86400.0})


def test_markdown_shows_the_branch_that_is_shown(conversation: ConversationCopy) -> None:
    assert render([conversation], "markdown") == (
        "# Boats\n\n*1970-01-02 01:00 · coder · smol*\n\n## System\n\nBe brief.\n\n## You\n\nWhich one?\n\n"
        "## Assistant\n\n```\nthe red one\n\n*(stopped)*\n\n## You\n\nWhy?\n\n"
        "## Assistant\n\n\n\n*(failed: the engine stopped)*\n"
    )


def test_text_shows_the_same(conversation: ConversationCopy) -> None:
    assert render([conversation], "text") == (
        "Boats\n=====\n1970-01-02 01:00 · coder · smol\n\nSystem:\nBe brief.\n\nYou:\nWhich one?\n\n"
        "Assistant (stopped):\n```\nthe red one\n\nYou:\nWhy?\n\nAssistant (failed: the engine stopped):\n\n"
    )


def test_several_conversations_follow_each_other(conversation: ConversationCopy) -> None:
    assert render([conversation, conversation], "markdown").count("\n---\n\n# Boats\n") == 1
    assert render([conversation, conversation], "text").count("\n\n\nBoats\n=====\n") == 1


@pytest.mark.parametrize(("name", "format"), [("a.md", "markdown"), ("b.JSON", "json"), ("c.d.txt", "text")])
def test_the_ending_of_a_file_is_its_format(name: str, format: str) -> None:
    assert format_of(Path(name)) == format


def test_another_ending_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ExchangeError, match=r"^notes: the format is not clear .* \.md, \.json, \.txt$"):
        format_of(Path("notes"))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    save(file, "old")
    save(file, "new ✓\n")
    assert file.read_bytes() == "new ✓\n".encode()
    assert os.listdir(tmp_path) == ["a.md"]


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "no" / "a.md"
    with pytest.raises(ExchangeError) as error:
        save(file, "x")
    assert str(error.value) == f"{file}: cannot be written: No such file or directory"

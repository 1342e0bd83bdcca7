"""Writing a message in the user's own editor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chat_driver import Open

from kvchat.tui.external_editor import EditorError, edit


def use(monkeypatch: pytest.MonkeyPatch, path: Path, script: str) -> None:
    path.write_text(f"import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\n{script}\n")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"'{sys.executable}' '{path}'")


def test_what_the_editor_saved_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path / "an editor.py", "file.write_text(file.read_text() + ' world\\n')")
    assert edit("hello") == "hello world"


def test_an_editor_that_fails_changes_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path / "editor.py", "sys.exit(3)")
    with pytest.raises(EditorError, match="ended with status 3"):
        edit("hello")


@pytest.mark.parametrize("command", ["no-such-editor", "'unclosed"])
def test_an_editor_that_does_not_exist_is_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", command)
    with pytest.raises(EditorError, match="set \\$EDITOR"):
        edit("hello")


async def test_a_terminal_that_cannot_be_left_says_so_and_keeps_the_text(open_chat: Open) -> None:
    async with open_chat() as chat:
        await chat.type("draft")
        await chat.press("ctrl+g")
        await chat.shows("this terminal cannot be left", "draft")

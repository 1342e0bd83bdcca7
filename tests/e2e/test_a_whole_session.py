"""The program in a pseudo-terminal: once through everything, and on terminals that can do little."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from terminal import Terminal

ENTER, ESCAPE, CTRL_N, CTRL_O, CTRL_Q, ALT_1 = "\r", "\x1b", "\x0e", "\x0f", "\x11", "\x1b1"


@pytest.mark.model
def test_a_session_from_the_first_question_to_the_next_day(
    home: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "kvchat", "--model", str(model_folder), "--max-tokens", "12", "--temperature", "0"]
    with Terminal(command) as chat:
        chat.wait_for("Write a message")
        chat.send("Name an [albatross]." + ENTER)
        chat.wait_for(r"[\d.]+ tok/s")
        chat.send(CTRL_N)
        chat.wait_for("New conversation with")
        chat.send(ENTER)
        chat.wait_for(r"2 New chat")
        chat.send("Name a fish." + ENTER)
        chat.wait_for(r"[\d.]+ tok/s")
        chat.send("/temp 0.5" + ENTER)
        chat.wait_for(r"temperature.*0\.5")
        chat.send("/title Fish and [chips]" + ENTER)
        chat.wait_for(r"2 Fish and \[chips\]")
        chat.send(CTRL_O)
        chat.wait_for("Open conversation")
        chat.send("albatross")
        chat.wait_for("1 shown")
        chat.send(ENTER)
        chat.wait_for(r"Name an \[albatross\]\.")
        chat.send("/theme" + ENTER)
        chat.wait_for("linen")
        chat.send("\x1b[B" + ENTER)
        chat.wait_until(lambda: (home / "config" / "kvchat" / "config.toml").is_file(), "the theme kept")
        chat.send("/export birds.md" + ENTER)
        chat.wait_for("Exported to birds.md")
        chat.send("a draft")
        chat.wait_for("a draft")
        chat.send(CTRL_Q)
        assert chat.wait_for_end() == 0
        assert chat.is_restored
    assert "Name an [albatross]." in (tmp_path / "birds.md").read_text()
    with Terminal(command) as chat:
        chat.wait_for(r"1 Name an \[albatross\].*2 Fish and \[chips\]")
        chat.wait_for("a draft")
        chat.send(CTRL_Q)
        assert chat.wait_for_end() == 0


@pytest.mark.parametrize(
    ("environment", "forbidden"),
    [
        ({"TERM": "xterm", "COLORTERM": ""}, rb"\x1b\[[\d;]*[34]8;[25];"),
        ({"TERM": "linux", "COLORTERM": ""}, rb"\x1b\[[\d;]*[34]8;[25];"),
        ({"TERM": "screen", "TMUX": "x", "COLORTERM": ""}, rb"\x1b\[[\d;]*[34]8;2;"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, rb"\x1b\[[\d;]*[34]8;(2|5;(?!2[345]))"),
    ],
    ids=["xterm", "linux", "tmux", "no color"],
)
def test_a_terminal_that_can_do_little_gets_only_what_it_understands(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    forbidden: bytes,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "config.json").write_text("{}")  # no engine can load it, and none is needed
    with Terminal([sys.executable, "-m", "kvchat", "--model", str(tmp_path)], columns=40, lines=10) as chat:
        chat.wait_for("Write a message")
        chat.send("typed")
        chat.wait_for("typed")
        assert not re.search(forbidden, chat.output)
        chat.send(CTRL_Q)
        assert chat.wait_for_end() == 0
        assert chat.is_restored

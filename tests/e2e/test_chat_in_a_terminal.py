"""The whole program in a pseudo-terminal, with the real model."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from terminal import Terminal

from kvchat import paths

ENTER, ALT_ENTER, CTRL_G, CTRL_Q, CTRL_T, F5 = "\r", "\x1b\r", "\x07", "\x11", "\x14", "\x1b[15~"
CTRL_PAGE_UP = "\x1b[5;5~"
StartChat = Callable[..., Terminal]


@pytest.fixture
def start_chat(home: Path, monkeypatch: pytest.MonkeyPatch) -> StartChat:
    monkeypatch.setenv("TERM", "xterm-256color")

    def start(*flags: str, columns: int = 140, lines: int = 40) -> Terminal:
        return Terminal([sys.executable, "-m", "kvchat", *flags], columns, lines)

    return start


def messages(role: str) -> list[tuple[str, str]]:
    """Status and text of the messages as another program sees them, oldest first."""
    with closing(sqlite3.connect(paths.database_file())) as database:
        return database.execute("SELECT status, text FROM messages WHERE role = ? ORDER BY id", [role]).fetchall()


def replies() -> list[tuple[str, str]]:
    return messages("assistant")


def engine_of(chat: Terminal) -> psutil.Process:
    [engine] = [child for child in chat.process.children() if "--multiprocessing-fork" in child.cmdline()]
    return engine


def opening_of(reply: str) -> str:
    """A pattern for the first words of a reply, which fit on one line of the screen."""
    return r"\s+".join(re.escape(word) for word in reply.split()[:3])


def test_a_dumb_terminal_is_pointed_to_the_one_shot(start_chat: StartChat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with start_chat() as chat:
        assert chat.wait_for_end() == 2
        assert chat.text.strip() == "kvchat: the chat needs a full terminal; ask a single question with: kvchat -p TEXT"


def test_a_bug_is_one_line_and_its_traceback_is_in_the_log(monkeypatch: pytest.MonkeyPatch, model_folder: Path) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    script = (
        "import sys, engine.process as process, kvchat.cli as cli\n"
        "process.ProcessClient.start = lambda *arguments: 1 / 0\n"
        f"sys.argv = ['kvchat', '--model', {str(model_folder)!r}]\n"
        "cli.main()\n"
    )
    with Terminal([sys.executable, "-c", script]) as chat:
        assert chat.wait_for_end() == 1
        assert "kvchat: ZeroDivisionError: division by zero; this is a bug, the details are in" in chat.text
        assert "Traceback" not in chat.text
    assert "Traceback" in (paths.log_dir() / "kvchat.log").read_text()


@pytest.mark.model
def test_the_chat_fits_a_terminal_of_40_by_10(start_chat: StartChat, model_folder: Path) -> None:
    with start_chat("--model", str(model_folder), columns=40, lines=10) as chat:
        chat.wait_for("Write a message")
        chat.send(CTRL_Q)
        assert chat.wait_for_end() == 0


@pytest.mark.model
def test_the_chat_comes_back_from_an_editor_that_fails(
    start_chat: StartChat, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "false")
    with start_chat("--model", str(model_folder)) as chat:
        chat.wait_for("Write a message")
        chat.send("a draft")
        chat.wait_for("a draft")
        chat.send(CTRL_G)
        chat.wait_for("the message is as it was")
        chat.send(" goes on")
        chat.wait_for("a draft goes on")
        chat.send(CTRL_Q)
        assert chat.wait_for_end() == 0


@pytest.mark.model
def test_two_tabs_stream_at_once_and_come_back_after_quitting(start_chat: StartChat, model_folder: Path) -> None:
    flags = ("--model", str(model_folder), "--temperature", "0", "--max-tokens", "120")
    with start_chat(*flags) as chat:
        chat.wait_for("Write a message")
        chat.send("Tell me about the sea." + ENTER)
        chat.wait_for("waiting for the engine")
        chat.send(CTRL_T)
        chat.wait_for(r"2 New chat")
        chat.send("Tell me about the moon." + ENTER)
        chat.wait_for(r"running +2")
        chat.wait_for(r"running +0")
        sea, moon = (text for status, text in replies() if status == "complete")
        chat.wait_for(opening_of(moon))
        chat.send(CTRL_PAGE_UP)
        chat.wait_for(opening_of(sea))
        chat.send(CTRL_Q)
        assert chat.wait_for_end() == 0

    with start_chat(*flags) as chat:
        chat.wait_for(opening_of(sea))
        assert "Tell me about the sea." in chat.text and "2 Tell me about the moon." in chat.text
        chat.send(CTRL_Q)
        assert chat.wait_for_end() == 0


@pytest.mark.model
def test_a_killed_engine_costs_the_running_reply_and_nothing_else(start_chat: StartChat, model_folder: Path) -> None:
    with start_chat("--model", str(model_folder), "--max-tokens", "1000", "--temperature", "0") as chat:
        chat.wait_for("Write a message")
        chat.send("Write a very long story." + ENTER)
        chat.wait_for(r"tpot +\d")
        engine_of(chat).kill()
        chat.wait_for("SIGKILL")
        assert "Write a very long story." in chat.text
        chat.send(F5)
        chat.wait_for(r"running +1")
        chat.send(CTRL_Q)
        chat.wait_for("Stop and quit")
        chat.send(ENTER)
        assert chat.wait_for_end() == 0
    assert [status for status, _ in replies()] == ["failed", "stopped"]


@pytest.mark.model
def test_a_killed_chat_comes_back_with_its_prompt_and_the_reply_so_far(
    start_chat: StartChat, model_folder: Path
) -> None:
    flags = ("--model", str(model_folder), "--max-tokens", "1000", "--temperature", "0")
    with start_chat(*flags) as chat:
        chat.wait_for("Write a message")
        chat.send("Write a very long story." + ENTER)
        chat.wait_until(lambda: [bool(text) for _, text in replies()] == [True], "a saved part of the reply")
        engine = engine_of(chat)
        chat.process.kill()
        assert chat.wait_for_end() == -signal.SIGKILL
        _, alive = psutil.wait_procs([engine], timeout=60)
        assert not alive, "the engine outlived the chat"

    [(_, so_far)] = replies()
    with start_chat(*flags) as chat:
        chat.wait_for(opening_of(so_far))
        assert "Write a very long story." in chat.text
        chat.send(CTRL_Q)
        assert chat.wait_for_end() == 0
    assert replies() == [("stopped", so_far)]


@pytest.mark.model
def test_keys_that_arrive_in_one_read_act_in_the_order_typed(start_chat: StartChat, model_folder: Path) -> None:
    with start_chat("--model", str(model_folder), "--max-tokens", "8", columns=80) as chat:
        chat.wait_for("Write a message")
        chat.send(ENTER.join(("first", "second", f"third{ALT_ENTER}fourth")))
        chat.wait_until(lambda: len(messages("user")) == 2, "two messages sent")
        chat.wait_for(r"third\W+\n\W+fourth")
    assert [text for _, text in messages("user")] == ["first", "second"]


@pytest.mark.model
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_chat_that_is_told_to_end_keeps_everything_and_restores_the_terminal(
    start_chat: StartChat, model_folder: Path, ending: signal.Signals
) -> None:
    flags = ("--model", str(model_folder), "--max-tokens", "1000", "--temperature", "0")
    with start_chat(*flags) as chat:
        chat.wait_for("Write a message")
        chat.send("Write a very long story." + ENTER + "and a draft")
        chat.wait_for(r"tpot +\d")
        chat.wait_for("and a draft")
        chat.process.send_signal(ending)
        assert chat.wait_for_end() == 128 + ending
        assert chat.is_restored
    [(status, so_far)] = replies()
    assert status == "stopped"
    with start_chat(*flags) as chat:
        chat.wait_for(opening_of(so_far))
        assert "and a draft" in chat.text


@pytest.mark.model
def test_a_chat_whose_terminal_is_closed_keeps_everything_and_ends(start_chat: StartChat, model_folder: Path) -> None:
    flags = ("--model", str(model_folder), "--max-tokens", "1000", "--temperature", "0")
    with start_chat(*flags) as chat:
        chat.wait_for("Write a message")
        chat.send("Write a very long story." + ENTER + "and a draft")
        chat.wait_for(r"tpot +\d")
        chat.wait_for("and a draft")
        chat.hang_up()
    [(_, so_far)] = replies()
    with start_chat(*flags) as chat:
        chat.wait_for(opening_of(so_far))
        assert "and a draft" in chat.text


@pytest.mark.model
def test_a_chat_that_was_suspended_is_drawn_again(start_chat: StartChat, model_folder: Path) -> None:
    with start_chat("--model", str(model_folder)) as chat:
        chat.wait_for("Write a message")
        chat.process.send_signal(signal.SIGTSTP)
        chat.wait_until(lambda: chat.is_restored, "the terminal as it was")
        # The process stops a moment later: a SIGCONT in between would be lost.
        os.waitid(os.P_PID, chat.process.pid, os.WSTOPPED | os.WNOWAIT)
        chat.wipe()
        chat.process.send_signal(signal.SIGCONT)
        chat.wait_for("Write a message")

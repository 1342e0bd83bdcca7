"""`kvchat -p` as a process: what it reads, what it prints, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from engine.api import TokenDelta
from kvchat.cli import oneshot


def only_line(stderr: bytes) -> str:
    text = stderr.decode()
    assert text.startswith("kvchat: ") and text.count("\n") == 1
    return text


def test_stdin_that_is_not_utf8_is_refused_with_the_place(run_kvchat) -> None:
    done = run_kvchat("-p", "Translate this:", stdin=b"caf\xe9")
    assert done.returncode == 2
    assert "0xe9 at offset 3" in only_line(done.stderr)


@pytest.mark.parametrize(("terminal", "shown"), [(True, "␛[31mred"), (False, "\x1b[31mred")])
def test_control_characters_of_a_reply_are_shown_to_a_terminal_and_kept_for_a_pipe(
    terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: terminal)
    oneshot._show(TokenDelta("r1", "\x1b[31mred", (1, 2)), as_json=False)
    assert capsys.readouterr().out == shown


def test_a_prompt_of_nothing_is_refused(run_kvchat) -> None:
    done = run_kvchat("-p", "  ", stdin=b"\n")
    assert done.returncode == 2
    assert "empty" in only_line(done.stderr)


def test_a_model_that_is_not_installed_is_one_line_with_the_command_that_installs_it(run_kvchat) -> None:
    done = run_kvchat("-p", "Hello")
    assert (done.returncode, done.stdout) == (1, b"")
    assert "kvchat pull smollm2-135m-instruct" in only_line(done.stderr)


def test_the_chat_without_a_terminal_points_to_the_one_shot(run_kvchat) -> None:
    done = run_kvchat()
    assert done.returncode == 2
    assert "kvchat -p" in only_line(done.stderr)


def test_a_reader_that_goes_away_ends_it_quietly(home: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "kvchat", "personas"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(home: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "kvchat", "personas"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "No space left" in only_line(done.stderr)


@pytest.mark.model
def test_the_json_object_and_the_stream_tell_the_same(run_kvchat, installed_model: str) -> None:
    flags = ("-p", "Say hello.", "--temperature", "0", "--max-tokens", "16")
    streamed = run_kvchat(*flags)
    assert streamed.returncode == 0

    printed = run_kvchat(*flags, "--json")
    assert (printed.returncode, printed.stderr) == (0, b"")
    reply = json.loads(printed.stdout)
    assert reply["text"] == streamed.stdout.decode().removesuffix("\n")
    assert reply["model"] == installed_model
    assert reply["finish_reason"] in ("stop", "length")
    assert len(reply["token_ids"]) == reply["usage"]["completion_tokens"] <= 16
    assert set(reply) == {"text", "model", "finish_reason", "token_ids", "usage", "metrics", "kv"}
    assert set(reply["usage"]) == {"prompt_tokens", "cached_tokens", "completion_tokens"}
    assert set(reply["metrics"]) == {"queue_s", "ttft_s", "tpot_s", "e2e_s", "tokens_per_s"}
    assert set(reply["kv"]) == {"dtype", "block_size", "blocks_total", "blocks_used"}
    tokens = reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]
    assert (tokens - 1) // reply["kv"]["block_size"] <= reply["kv"]["blocks_used"] <= reply["kv"]["blocks_total"]


@pytest.mark.model
def test_piped_text_follows_the_question(run_kvchat, installed_model: str) -> None:
    done = run_kvchat(
        "-p", "Count the words:", "--json", "--max-tokens", "1", "--system", "", stdin="wörd ".encode() * 200
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["usage"]["prompt_tokens"] > 200


@pytest.mark.model
def test_a_prompt_longer_than_the_context_is_one_line(run_kvchat, installed_model: str) -> None:
    done = run_kvchat("-p", "Summarize:", stdin=b"word " * 9000)
    assert (done.returncode, done.stdout) == (1, b"")
    assert "the context holds 8,192" in only_line(done.stderr)


@pytest.mark.model
def test_a_prompt_of_far_too_many_bytes_is_refused_before_it_is_tokenized(run_kvchat, installed_model: str) -> None:
    done = run_kvchat("-p", "Summarize:", stdin=b"x" * 1_000_000)
    assert (done.returncode, done.stdout) == (1, b"")
    line = only_line(done.stderr)
    assert "the prompt of 1,000,012 bytes is too long" in line and "8,192 tokens" in line


@pytest.mark.model
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("[sampling]\nmax_tokens = 3", "it reached max_tokens (3)"),
        ("[engine]\ncontext_length = 48", "the context is full (48 tokens)"),
        ("[engine]\nkv_memory = 1105920\nkv_dtype = 'bfloat16'", "the KV cache is full (48 tokens)"),
    ],
)
def test_a_reply_that_was_cut_says_why_after_the_text(
    settings: str, reason: str, run_kvchat, installed_model: str, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(settings)
    flags = ("--config", str(tmp_path / "config.toml"), "-p", "Write a long story.", "--system", "Write.")
    done = run_kvchat(*flags, "--temperature", "0")
    assert done.returncode == 0 and done.stdout.endswith(b"\n")
    assert only_line(done.stderr).startswith(f"kvchat: the reply was cut: {reason}")

    as_json = run_kvchat(*flags, "--temperature", "0", "--json")
    assert (as_json.returncode, as_json.stderr) == (0, b"")


@pytest.mark.model
def test_ctrl_c_on_a_terminal_leaves_the_cursor_on_a_new_line(installed_model: str) -> None:
    program = pexpect.spawn(sys.executable, ["-m", "kvchat", "-p", "Tell a long story.", "--max-tokens", "4000"])
    program.expect("[A-Za-z]")
    program.sendintr()
    program.expect(pexpect.EOF)
    program.close()
    assert program.before.endswith(b"\r\n")
    assert program.exitstatus == 130


@pytest.mark.model
def test_ctrl_c_in_mid_reply_is_quiet(
    start_kvchat: Callable[..., subprocess.Popen[bytes]], installed_model: str
) -> None:
    with start_kvchat("-p", "Tell me a very long story.", "--max-tokens", "4000", "--seed", "1") as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.read(1)
        program.send_signal(signal.SIGINT)
        assert program.stderr.read() == b""
    assert program.returncode == 130

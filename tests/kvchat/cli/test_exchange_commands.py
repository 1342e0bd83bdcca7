"""`kvchat export`, `import`, `search` and `-c`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kvchat import paths
from kvchat.cli.program import run
from kvchat.store import Conversation, Store

MESSAGE = {"message": {"author": {"role": "user"}, "content": {"parts": ["Where do albatrosses nest?"]}}}


def write(title: str, *texts: str) -> Conversation:
    """A conversation in the user's history."""
    with Store.open() as store:
        conversation = store.create_conversation(title=title, model="smollm2-135m-instruct", system_prompt="Be brief.")
        above = None
        for index, text in enumerate(texts):
            above = store.append_message(conversation.id, above, "assistant" if index % 2 else "user", text).id
        return store.conversation(conversation.id)


def test_a_terminal_is_shown_control_characters_and_a_file_gets_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("First", "one", "\x1b]0;title\x07 [red]two")
    assert run(["export"]) == 0
    assert "\x1b]0;title\x07 [red]two" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["export"]) == 0
    assert "␛]0;title␇ [red]two" in capsys.readouterr().out


def test_an_export_of_everything_comes_back_with_an_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("First", "one", "two")
    write("Second", "three")
    file = tmp_path / "all.json"
    assert run(["export", "--all", "-o", str(file)]) == 0
    paths.database_file().rename(tmp_path / "old.db")

    assert run(["import", str(file)]) == 0
    assert run(["import", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 conversations imported",
        "0 conversations imported, 2 were here already",
    ]
    assert run(["export", "--all", "--format", "json"]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_export_without_an_id_is_the_last_conversation_in_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    write("Old", "one")
    write("New", "two")
    with Store.open() as store:
        store.create_conversation(title="Nothing was written here")
    assert run(["export"]) == 0
    assert capsys.readouterr().out.startswith("# New\n")


def test_export_takes_the_beginning_of_an_id_that_search_prints(capsys: pytest.CaptureFixture[str]) -> None:
    write("Sea", "Where do albatrosses\nnest?", "On \x1b[31m islands")
    write("Land", "Where do storks nest?")
    assert run(["search", "albat"]) == 0
    head, snippet = capsys.readouterr().out.splitlines()
    assert head.endswith("  Sea") and snippet == "          user: Where do albatrosses nest?"
    assert run(["export", head.split()[0], "--format", "text"]) == 0
    assert capsys.readouterr().out.startswith("Sea\n===\n")


def test_what_was_imported_without_a_leaf_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chats.json"
    file.write_text(json.dumps([{"current_node": "gone", "mapping": {"a": MESSAGE}}]))
    assert run(["import", str(file)]) == 0
    for arguments in (["export"], ["export", "--all"]):
        capsys.readouterr()
        assert run(arguments) == 0
        assert "albatross" in capsys.readouterr().out


def test_a_conversation_without_messages_is_found_and_said_to_hold_none(capsys: pytest.CaptureFixture[str]) -> None:
    conversation = write("Empty")
    for arguments in (["export", conversation.id], ["export", "--all"]):
        assert run(arguments) == 1
        assert capsys.readouterr().err == "kvchat: there is nothing to export: no message was written yet\n"


def test_a_title_takes_one_line_of_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    write("Sea\nand\tland", "one")
    assert run(["search", "sea"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith("  Sea and land")


def test_search_prints_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    write("Sea", "Where?", "On \x1b[31m islands")
    assert run(["search", "islands"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["export"], 1, "there is no conversation yet"),
        (["export", "abc"], 1, "no conversation has an id that begins with 'abc'"),
        (["export", "abc", "--all"], 2, "either an ID or --all"),
        (["export", "-o", "x.pdf"], 1, "x.pdf: the format is not clear from the name"),
        (["export", "--format", "pdf"], 2, "'markdown', 'json', 'text'"),
        (["search"], 2, "TEXT"),
        (["search", " "], 2, "TEXT must not be empty"),
        (["search", "\udcff\udcfe"], 2, "it is not valid UTF-8"),
        (["export", "\udcff"], 2, "it is not valid UTF-8"),
        (["search", "nothing"], 1, "nothing found with 'nothing'"),
        (["import", "no-such-file.json"], 1, "no-such-file.json: No such file or directory"),
        (["-c", "-p", "x", "--persona", "coder"], 2, "no --persona"),
        (["-c", "models"], 2, "-c"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("kvchat: ") and output.err.count("\n") == 1
    assert said in output.err


def test_a_bad_file_is_named_with_the_place_and_nothing_of_it_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "chats.json"
    file.write_text(json.dumps([{"messages": [{"role": "user", "content": "x"}]}, {"messages": 3}]))
    assert run(["import", str(file)]) == 1
    assert capsys.readouterr().err == (
        f"kvchat: {file}: entry 2.messages: expected `array`, got `int`; nothing was imported\n"
    )
    with Store.open() as store:
        assert store.conversations() == []


def test_import_reads_stdin(run_kvchat) -> None:
    done = run_kvchat("import", "-", stdin=b'[{"role": "user", "content": "Hello"}]')
    assert (done.returncode, done.stdout) == (0, b"1 conversation imported\n")
    exported = run_kvchat("export", "--format", "json")
    assert json.loads(exported.stdout)["conversations"][0]["title"] == "Hello"


def test_continuing_while_the_reply_still_runs_is_refused(run_kvchat, installed_model: str) -> None:
    with Store.open() as store:
        conversation = store.create_conversation(model=installed_model)
        question = store.append_message(conversation.id, None, "user", "?")
        store.append_message(conversation.id, question.id, "assistant", "half", status="streaming")
        done = run_kvchat("-p", "And?", "-c")
    assert done.returncode == 1
    assert b"a reply is running in the last conversation" in done.stderr


@pytest.mark.model
def test_a_question_with_c_is_answered_in_the_last_conversation_and_kept_there(
    run_kvchat, installed_model: str
) -> None:
    flags = ("-c", "--temperature", "0", "--max-tokens", "8")
    conversation = write("Names", "My name is Ada.", "Hello Ada!")
    first = run_kvchat("-p", "What is my name?", *flags)
    assert first.returncode == 0, first.stderr
    second = run_kvchat("-p", "Are you sure?", *flags, "--json")
    reply = json.loads(second.stdout)

    with Store.open() as store:
        messages = store.path(conversation.id)
        assert [message.role for message in messages] == ["user", "assistant"] * 3
        assert [message.text for message in messages[2:5:2]] == ["What is my name?", "Are you sure?"]
        assert messages[3].text == first.stdout.decode().removesuffix("\n")
        assert messages[5].text == reply["text"] and messages[5].token_ids == tuple(reply["token_ids"])
        assert messages[5].metrics and messages[5].metrics.completion_tokens <= 8
        fed = sum(len(message.token_ids) for message in messages[:5])
        assert fed == reply["usage"]["prompt_tokens"]
        assert store.conversation(conversation.id).sampling.max_tokens == 1024, "flags are for one reply"


@pytest.mark.model
def test_a_question_that_does_not_fit_is_refused_and_leaves_the_conversation_as_it_was(
    run_kvchat, installed_model: str
) -> None:
    conversation = write("Names", "My name is Ada.", "Hello Ada!")
    done = run_kvchat("-p", "word " * 9000, "-c")
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1
    with Store.open() as store:
        assert [message.text for message in store.path(conversation.id)] == ["My name is Ada.", "Hello Ada!"]

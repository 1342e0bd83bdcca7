"""Text files that go along with a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chat_driver import Open

from kvchat.tui.attachments import MAX_BYTES, AttachmentError, attached_name, read_attachment
from kvchat.tui.completion import path_candidates
from kvchat.tui.widgets.composer import Chip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "plan.md").write_text("Buy [milk]\n```\ncode\n```\n")
    (folder / "naive.py").write_text("print('hi')\n")
    (folder / ".hidden").write_text("x")
    monkeypatch.chdir(folder)
    return folder


async def test_an_at_sign_lists_files_and_tab_attaches_one(open_chat: Open, folder: Path) -> None:
    async with open_chat(size=(100, 30)) as chat:
        await chat.type("Explain @")
        await chat.shows("notes/", "naive.py")
        assert ".hidden" not in chat.text
        await chat.type("nai")
        await chat.press("tab")
        await chat.shows("naive.py · ", "about 10 tokens")
        await chat.press("enter")
        await chat.until(lambda: chat.client.requests)
        text = chat.client.requests["r1"].messages[-1].text
        assert text == "Explain \n\nFile `naive.py`:\n\n```py\nprint('hi')\n```"


async def test_a_path_goes_on_through_folders(open_chat: Open, folder: Path) -> None:
    async with open_chat() as chat:
        await chat.type("@no")
        await chat.press("tab")
        await chat.shows("plan.md")
        await chat.press("tab")
        await chat.until(lambda: chat.app.screen.query(Chip))
        assert "````md\nBuy [milk]" in chat.app.chat.active_pane.composer.text


async def test_an_attached_file_comes_back_with_the_draft(open_chat: Open, folder: Path) -> None:
    async with open_chat() as chat:
        await chat.type("@nai")
        await chat.press("tab")
        await chat.until(lambda: "naive.py" in chat.tab.draft)
        await chat.press("ctrl+q")
    async with open_chat() as chat:
        await chat.shows("naive.py · ")


async def test_enter_attaches_the_file_that_an_arrow_went_to(open_chat: Open, folder: Path) -> None:
    async with open_chat() as chat:
        await chat.type("@")
        await chat.shows("notes/", "naive.py")
        await chat.press("down", "enter")
        await chat.shows("naive.py · ")
        assert not chat.client.requests


async def test_enter_sends_a_word_that_some_path_begins_with(open_chat: Open, folder: Path) -> None:
    async with open_chat() as chat:
        await chat.type("a word on @notes")
        await chat.shows("notes/")
        await chat.press("enter")
        await chat.until(lambda: chat.client.requests)
        assert chat.client.requests["r1"].messages[-1].text == "a word on @notes"


async def test_a_word_with_an_at_sign_is_sent_as_it_is(open_chat: Open, folder: Path) -> None:
    async with open_chat() as chat:
        request = await chat.send("write to me@example.org or @nobody")
        assert chat.client.requests[request].messages[-1].text == "write to me@example.org or @nobody"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "there is no such file"),
        (b"\x7fELF\0\0", "a binary file"),
        (b"na\xefve", "not UTF-8 at byte 2"),
        (b" \n", "the file is empty"),
        (b"x" * (MAX_BYTES + 1), "too large"),
    ],
)
def test_what_is_no_text_is_refused_in_one_line(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "file.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AttachmentError, match=problem) as refused:
        read_attachment(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_the_list_of_files_says_what_attaching_them_would_mean(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("word" * 1500)
    (tmp_path / "video.bin").write_bytes(b"x" * (MAX_BYTES + 1))
    about = {each.label: each.about for each in path_candidates(f"@{tmp_path}/")}
    assert about == {"notes.txt": "6 KiB · about 1,500 tokens", "video.bin": "1 MiB: too large to attach"}


def test_the_home_of_nobody_has_no_files() -> None:
    assert path_candidates("see @~nobody-of-that-name/") == []


async def test_a_file_whose_name_is_not_utf_8_is_attached_under_a_readable_one(open_chat: Open, folder: Path) -> None:
    Path(os.fsdecode(b"wrong\xff.txt")).write_text("its text")
    async with open_chat() as chat:
        await chat.type("@wrong")
        await chat.shows("wrong\ufffd.txt")
        await chat.press("tab", "enter")
        await chat.until(lambda: chat.client.requests)
        [request] = chat.client.requests.values()
        assert "its text" in request.messages[-1].text


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(AttachmentError, match="not a file"):
        read_attachment(tmp_path)


def test_the_name_is_found_again_and_only_there() -> None:
    assert attached_name("File `a.py`:\n\n```py\nx\n```") == "a.py"
    assert attached_name("File it") == ""

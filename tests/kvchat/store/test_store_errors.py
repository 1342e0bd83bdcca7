"""What goes wrong is said in one line, and no file is harmed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.api import Metrics
from kvchat.store import Store, StoreError
from kvchat.store.errors import explain

DAMAGED = "the history is damaged or not a kvchat database: move it away to start fresh, or put a backup in its place"
UNWRITABLE = "cannot write here: make the folder writable, or set XDG_DATA_HOME to one that is"
NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[None]:
    """File permissions do not bind root: act as somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared_path() -> Iterator[Path]:
    """A history in a folder that everybody may look into."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder / "history.db"


@pytest.mark.parametrize("content", [b"oops\n", b"not a database, " * 1000], ids=["short", "long"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError) as error:
        Store.open(path)
    assert str(error.value) == f"{path}: {DAMAGED}"
    assert path.read_bytes() == content


def test_a_truncated_database_is_refused_and_left_alone(path: Path) -> None:
    with Store.open(path) as store:
        conversation = store.create_conversation()
        for number in range(50):
            store.append_message(conversation.id, None, "user", f"text {number} " * 50)
    content = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(content)
    with pytest.raises(StoreError) as error:
        Store.open(path)
    assert str(error.value) == f"{path}: {DAMAGED}"
    assert path.read_bytes() == content


def test_damage_that_shows_later_is_one_line_too(path: Path) -> None:
    with Store.open(path) as store:
        conversation = store.create_conversation()
        for number in range(200):
            store.append_message(conversation.id, None, "user", f"text {number} " * 50)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    with Store.open(path) as store, pytest.raises(StoreError) as error:
        store.children(None, conversation.id)
    assert str(error.value) == f"{path}: {DAMAGED}"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(StoreError) as error:
        Store.open(tmp_path / "data" / "history.db")
    assert str(error.value) == f"{tmp_path / 'data'}: {UNWRITABLE}"


def test_a_read_only_folder_is_named(shared_path: Path) -> None:
    shared_path.parent.chmod(0o555)
    with ordinary_user(), pytest.raises(StoreError) as error:
        Store.open(shared_path)
    assert str(error.value) == f"{shared_path.parent}: {UNWRITABLE}"


def test_a_read_only_database_is_named(shared_path: Path) -> None:
    Store.open(shared_path).close()
    for file in (shared_path, shared_path.with_name("history.db.locks")):
        file.chmod(0o777)
    for file in shared_path.with_name("history.db.locks").iterdir():
        file.chmod(0o666)
    shared_path.chmod(0o444)
    shared_path.parent.chmod(0o555)
    with ordinary_user(), pytest.raises(StoreError) as error:
        Store.open(shared_path)
    assert str(error.value) == f"{shared_path}: {UNWRITABLE}"


@pytest.mark.parametrize("sqlite_name", ["SQLITE_IOERR_SHMSIZE", "SQLITE_CANTOPEN"])
def test_a_disk_without_room_is_said_to_be_full(path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_name: str) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = sqlite_name
    assert "full" not in str(explain(error, path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    assert str(explain(error, path)) == f"{path}: the disk is full: free some space and try again"


def test_what_another_instance_deleted_is_said_to_be_gone(path: Path) -> None:
    with Store.open(path) as store, Store.open(path) as other:
        conversation = store.create_conversation()
        message = store.append_message(conversation.id, None, "user", "hi")
        other.delete_conversation(conversation.id)
        gone = [
            lambda: store.conversation(conversation.id),
            lambda: store.update_conversation(conversation.id, title="x"),
            lambda: store.update_conversation(conversation.id, tags=["x"]),
            lambda: store.append_message(conversation.id, message.id, "assistant", "hello"),
            lambda: store.update_message(message.id, text="x"),
            lambda: store.save_metrics(message.id, Metrics()),
            lambda: store.siblings(message.id),
        ]
        for call in gone:
            with pytest.raises(StoreError, match="deleted elsewhere"):
                call()
        assert store.path(conversation.id) == []


def test_a_failed_change_leaves_the_store_usable(store: Store) -> None:
    conversation = store.create_conversation(title="before")
    with pytest.raises(StoreError):
        store.update_conversation(conversation.id, title="after", leaf_id=12345)
    assert store.conversation(conversation.id).title == "before"
    assert store.update_conversation(conversation.id, title="after").title == "after"

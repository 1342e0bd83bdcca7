"""One SQLite connection: opened, migrated, transactional, with errors a user can read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from kvchat.store.errors import StoreError, explain
from kvchat.store.search import segment

BUSY_TIMEOUT_S = 5.0


class Database:
    """A connection that belongs to the thread that made it.

    Write-ahead logging lets any number of instances read while one writes. Every write transaction takes the write
    lock when it begins, where SQLite can wait for it: one that reads first and then writes would fail at once.
    With synchronous=NORMAL a commit does not wait for the disk; a killed process loses nothing, a power cut at most the
    last transactions.
    """

    def __init__(self, path: Path, scripts: Sequence[str] | None = None) -> None:
        """Open or create the database and bring it to the version of `scripts` (default: this program's).

        The caller keeps others from opening it at the same time. Raises StoreError, and changes nothing then, if the
        file is damaged, foreign or newer.
        """
        self.path = path
        with _explained(path):
            self._connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            try:
                self._connection.row_factory = sqlite3.Row
                self._connection.create_function("segment", 1, segment, deterministic=True)
                self._connection.execute("PRAGMA trusted_schema = ON")  # the triggers call segment()
                migrate(self._connection, path, migrations() if scripts is None else scripts)
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("PRAGMA foreign_keys = ON")
            except BaseException:
                self._connection.close()
                raise

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with _explained(self.path):
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that happens inside is committed together, or not at all."""
        with _explained(self.path), _atomic(self._connection):
            yield self._connection

    def close(self) -> None:
        self._connection.close()


def migrations() -> list[str]:
    """The SQL of every version of the format, the first one first."""
    folder = files("kvchat.store") / "migrations"
    return [file.read_text("utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name)]


def migrate(connection: sqlite3.Connection, path: Path, scripts: Sequence[str]) -> None:
    """Run the scripts that the database has not seen, in one transaction, after copying the file beside itself.

    `PRAGMA user_version` is the number of scripts that ran so far.
    """
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version > len(scripts):
        raise StoreError(
            f"{path}: written by a newer kvchat (version {version} of the format, this program knows {len(scripts)}): "
            "upgrade kvchat"
        )
    if version == len(scripts):
        return
    if version == 0 and tables:
        raise StoreError(f"{path}: a database of another program: move it away, or set XDG_DATA_HOME")
    if version > 0:
        back_up(connection, path.with_name(f"{path.name}.v{version}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"))
    with _atomic(connection, begin=False):  # executescript() commits what was begun before it
        connection.executescript("BEGIN IMMEDIATE;\n" + "\n".join(scripts[version:]))
        connection.execute(f"PRAGMA user_version = {len(scripts)}")
        if broken := connection.execute("PRAGMA foreign_key_check").fetchall():
            raise StoreError(f"{path}: {len(broken)} rows refer to nothing, so it cannot be upgraded: report this")


def back_up(connection: sqlite3.Connection, target: Path) -> None:
    """Copy the whole database to `target`, which appears only when it is complete."""
    unfinished = target.with_name(target.name + ".part")
    copy = sqlite3.connect(unfinished)
    try:
        connection.backup(copy)
    finally:
        copy.close()
    unfinished.rename(target)


@contextmanager
def _atomic(connection: sqlite3.Connection, begin: bool = True) -> Iterator[None]:
    try:
        if begin:
            connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if (explained := explain(error, path)) is None:
            raise
        raise explained from error


def insert(connection: sqlite3.Connection, table: str, row: Mapping[str, object], *, if_absent: bool = False) -> int:
    """Add a row; its number, or with `if_absent` 0 where its key is taken."""
    verb, places = "INSERT OR IGNORE" if if_absent else "INSERT", ", ".join("?" * len(row))
    cursor = connection.execute(f"{verb} INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values()))
    return cursor.lastrowid or 0 if cursor.rowcount else 0


def update(connection: sqlite3.Connection, table: str, row_id: str | int, changes: Mapping[str, object]) -> bool:
    """Change a row; whether it is there."""
    assignments = ", ".join(f"{column} = ?" for column in changes)
    cursor = connection.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*changes.values(), row_id))
    return cursor.rowcount == 1

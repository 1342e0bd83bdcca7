"""The running programs that share one history. Each holds a file lock, which the system releases even at kill -9."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from kvchat.store.errors import StoreError, unwritable

OPENING_TIMEOUT_S = 30.0


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Only one instance at a time migrates, recovers and joins."""
    lock = FileLock(folder / "opening.lock", timeout=OPENING_TIMEOUT_S)
    try:
        lock.acquire()
    except Timeout as timeout:
        raise StoreError(f"{folder}: another kvchat has been opening the history for long: close it") from timeout
    except OSError as error:
        raise unwritable(error, folder) from error
    try:
        yield
    finally:
        lock.release()


class Instance:
    """This running program among those that share the history of `folder`. Join while `opening`."""

    def __init__(self, folder: Path) -> None:
        self.id = uuid.uuid4().hex
        self._folder = folder
        self._life = FileLock(self._life_file(self.id))
        self._life.acquire()
        self._tabs = FileLock(folder / "tabs.lock")

    @cached_property
    def owns_tabs(self) -> bool:
        """Whether the saved tabs are this instance's; the first one to ask gets them, for its whole life."""
        return _try(self._tabs)

    def living(self) -> list[str]:
        """The ids of all instances that run now, this one included. Clears away what dead ones left."""
        alive = [self.id]
        for file in self._folder.glob("*.instance"):
            if file.stem == self.id:
                continue
            lock = FileLock(file)
            if _try(lock):
                lock.release()
                file.unlink(missing_ok=True)
            else:
                alive.append(file.stem)
        return alive

    def leave(self) -> None:
        self._tabs.release()
        self._life.release()
        self._life_file(self.id).unlink(missing_ok=True)

    def _life_file(self, instance_id: str) -> Path:
        return self._folder / f"{instance_id}.instance"


def _try(lock: FileLock) -> bool:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    return True

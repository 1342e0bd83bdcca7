"""How a long job says where it stands."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: what is being done, and how many bytes of how many, where that is known."""

    stage: str
    done_bytes: int | None = None
    total_bytes: int | None = None


OnProgress = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """An OnProgress for whoever does not want to hear."""


@contextmanager
def watching(folder: Path, measure: Callable[[list[int]], int], total: int, on_progress: OnProgress) -> Iterator[None]:
    """Report a download by the sizes of the files that grow in its folder, from a thread, while the block runs.

    Whatever does the downloading shows its own progress differently in each of its versions; files grow in all.
    """
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(POLL_S):
            on_progress(Progress("downloading", min(measure(_file_sizes(folder)), total), total))

    thread = threading.Thread(target=report, name="download-progress", daemon=True)
    on_progress(Progress("downloading", 0, total))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    on_progress(Progress("downloading", total, total))


def _file_sizes(folder: Path) -> list[int]:
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a temporary file that was there a moment ago
                sizes.append(os.stat(os.path.join(parent, name)).st_size)
    return sizes

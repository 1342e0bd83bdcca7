"""`kvchat pull`: install a model, showing where it stands."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

from kvchat.cli.options import TEXT, not_empty

if TYPE_CHECKING:
    from kvchat.catalogue.progress import Progress

BAR_WIDTH = 24


@click.command("pull")
@click.argument("model", metavar="NAME|OWNER/REPO|PATH", type=TEXT, callback=not_empty)
def command(model: str) -> None:
    """Install a model.

    NAME is one that kvchat models lists, OWNER/REPO a repository of the Hugging Face Hub, PATH a model folder or a GGUF
    file. A model that is installed already is left as it is: delete its folder to have it anew.
    """
    from engine.locate import models_dir
    from kvchat.catalogue.pull import pull

    on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    display = _Bar() if on_terminal else _Lines()
    try:
        folder = pull(model, display.show)
    finally:
        display.end()
    print(f"{folder.relative_to(models_dir()).as_posix()} is installed in {folder}")


class _Bar:
    """One line, drawn again at each report."""

    def show(self, progress: Progress) -> None:
        text = progress.stage
        if progress.total_bytes:
            done = progress.done_bytes or 0
            filled = BAR_WIDTH * done // progress.total_bytes
            bar = "#" * filled + "-" * (BAR_WIDTH - filled)
            text = f"{progress.stage:<12} [{bar}] {done / 1e6:.0f} of {progress.total_bytes / 1e6:.0f} MB"
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()

    def end(self) -> None:
        sys.stderr.write("\r\x1b[K")


class _Lines:
    """A line for each stage, and for each quarter of it."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, progress: Progress) -> None:
        line = progress.stage
        if progress.total_bytes:
            quarters = 4 * (progress.done_bytes or 0) // progress.total_bytes
            line = f"{progress.stage}: {quarters * 25} % of {progress.total_bytes / 1e6:.0f} MB"
        if line != self._last:
            self._last = line
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        pass

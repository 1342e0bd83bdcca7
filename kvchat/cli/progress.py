"""How a command that takes its time says where it is."""

from __future__ import annotations

import os
import shutil
import sys

BAR_WIDTH = 24


class ProgressLine:
    """On stderr: one line of a terminal, drawn again each time; elsewhere a line for each stage, which is the text up
    to a colon."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._stage = ""

    def show(self, text: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)
        elif (stage := text.partition(":")[0]) != self._stage:
            self._stage = stage
            print(stage, file=sys.stderr, flush=True)

    def bar(self, stage: str, fraction: float) -> None:
        """A stage with a bar that is so far full."""
        full = round(BAR_WIDTH * min(1.0, fraction))
        self.show(f"{stage}: {'█' * full}{'░' * (BAR_WIDTH - full)} {fraction:.0%}")

    def end(self) -> None:
        if self._terminal:
            print(end="\r\x1b[K", file=sys.stderr, flush=True)

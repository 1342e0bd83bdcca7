"""A program in a real pseudo-terminal, and what stands on its screen."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import Self

import pexpect
import psutil
import pyte
import pytest

READ_S = 0.2


class Terminal:
    """Runs a command until the block ends, then kills what is left of it."""

    def __init__(self, command: Sequence[str], columns: int = 140, lines: int = 40) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._output = bytearray()
        self._stream = pyte.ByteStream(self._screen)
        # readline, where something loads it, exports a size of its own, behind the back of os.environ in this process.
        environment = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        self._child = pexpect.spawn(
            command[0], list(command[1:]), env=environment, dimensions=(lines, columns), timeout=None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._child.isalive():
            for process in (*self.process.children(recursive=True), self.process):
                process.kill()
        self._child.close(force=True)

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._child.pid)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def output(self) -> bytes:
        """Everything the program wrote."""
        return bytes(self._output)

    @property
    def is_restored(self) -> bool:
        """The program left the alternate screen, the mouse and the cursor as it found them."""
        modes = dict(re.findall(rb"\x1b\[\?(1049|1000|1003|25)([hl])", self._output))
        return modes == {b"1049": b"l", b"1000": b"l", b"1003": b"l", b"25": b"h"}

    def hang_up(self) -> None:
        """Close the terminal under the program, and wait until the program ends."""
        self._child.ptyproc.fileobj.close()
        self._child.wait()

    def wipe(self) -> None:
        """Forget what stands on the screen."""
        self._screen.reset()

    def send(self, keys: str) -> None:
        self._child.send(keys)

    def wait_for(self, pattern: str) -> None:
        """Read until the screen shows a match."""
        self.wait_until(lambda: re.search(pattern, self.text) is not None, f"{pattern!r} on the screen")

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 180) -> None:
        """Read what the program writes until something holds."""
        deadline = monotonic() + seconds
        while not holds():
            if not self._read() or monotonic() > deadline:
                pytest.fail(f"waited in vain for {what}; the screen shows\n{self.text}")

    def wait_for_end(self) -> int:
        """Read until the program ends; its exit code, negative for a signal."""
        while self._read():
            pass
        self._child.wait()
        return self._child.exitstatus if self._child.signalstatus is None else -self._child.signalstatus

    def _read(self) -> bool:
        """Show what the program wrote, waiting a moment for it; False when it ended."""
        try:
            output = self._child.read_nonblocking(1 << 16, timeout=READ_S)
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            return False
        else:
            self._output += output
            self._stream.feed(output)
        return True

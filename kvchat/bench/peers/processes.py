"""Child processes: programs that run to their end, and workers that stay."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import IO, Any, NamedTuple, cast

import kvchat.bench
from kvchat.bench.peers.peer import PeerError
from kvchat.bench.workers.memory import maxrss_bytes


class Ended(NamedTuple):
    stdout: str
    seconds: float
    peak_bytes: int


def run(command: Sequence[str | Path]) -> Ended:
    """Run a program to its end. Raises PeerError with the last thing it said when it fails."""
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        started = perf_counter()
        process = _start(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        seconds = perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise PeerError(f"{Path(command[0]).name} failed: {_last_line(stderr) or f'exit {process.returncode}'}")
        stdout.seek(0)
        return Ended(stdout.read().decode(errors="replace"), seconds, maxrss_bytes(usage))


class Worker:
    """A module of kvchat.bench.workers in the interpreter `python`, with its settings; `about` is what it says of
    itself. Raises PeerError when it cannot load."""

    def __init__(self, python: str | Path, module: str, **settings: Any) -> None:
        self._stderr = TemporaryFile()  # noqa: SIM115
        self._process = _start(
            [python, "-m", "workers.serve", module, json.dumps(settings)],
            cwd=Path(kvchat.bench.__file__).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self._requests = cast(IO[str], self._process.stdin)
        self._answers = cast(IO[str], self._process.stdout)
        try:
            self.about: dict[str, Any] = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, operation: str, **arguments: Any) -> Any:
        try:
            print(json.dumps([operation, arguments]), file=self._requests, flush=True)
        except BrokenPipeError:
            raise PeerError(self._death()) from None
        return self._answer()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line:
            raise PeerError(self._death())
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer["value"]

    def _death(self) -> str:
        return f"its process ended (exit {self._process.wait()}): {_last_line(self._stderr)}"


def _start(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    try:
        return subprocess.Popen(command, **options)
    except OSError as error:
        raise PeerError(f"{command[0]} cannot be started: {error.strerror}") from None


def _last_line(stream: IO[bytes]) -> str:
    stream.seek(0)
    lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")

"""What the engines with a Python interface have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvchat.bench.peers.peer import Prompt
from kvchat.bench.peers.processes import Worker, run


class PythonPeer:
    """An engine in a worker that stays, and in a fresh process where a whole process is measured.

    Raises PeerError when the worker cannot load it.
    """

    def __init__(self, name: str, python: str | Path, module: str, **settings: Any) -> None:
        self.name = name
        self._python, self._module, self._settings = python, module, settings
        self._worker = self._spawn()
        self.about = self._worker.about
        self.version: str = self.about["version"]

    def one_shot_command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        return self._worker.ask("decode", prompts=prompts, steps=steps)

    def prefill(self, prompt: Prompt) -> float:
        return self._worker.ask("prefill", prompt=prompt)

    def first_token_behind(self, first: Prompt, second: Prompt) -> float:
        return self._worker.ask("first_token_behind", first=first, second=second)

    def one_shot(self) -> float:
        return run(self.one_shot_command()).seconds

    def peak_memory(self, prompt: Prompt, steps: int) -> int:
        worker = self._spawn()
        try:
            worker.ask("decode", prompts=[prompt], steps=steps)
            return worker.ask("peak_bytes")
        finally:
            worker.close()

    def close(self) -> None:
        self._worker.close()

    def _spawn(self) -> Worker:
        return Worker(self._python, self._module, **self._settings)

"""kvchat itself, measured as its peers are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.config import EngineConfig
from engine.locate import model_folder
from kvchat.bench.peers.peer import ONE_SHOT_TOKENS, QUESTION
from kvchat.bench.peers.python_peer import PythonPeer


class KvchatPeer(PythonPeer):
    """`flags` are those that make a `kvchat` process run the engine of `config`."""

    def __init__(self, config: EngineConfig, flags: Sequence[str]) -> None:
        settings = msgspec.structs.asdict(config) | {"model": str(model_folder(config.model).absolute())}
        super().__init__("kvchat", sys.executable, "kvchat_engine", **settings)
        self._flags = flags

    def one_shot_command(self) -> Sequence[str | Path]:
        reply = ("--temperature", "0", "--max-tokens", str(ONE_SHOT_TOKENS))
        return (sys.executable, "-m", "kvchat", *self._flags, *reply, "-p", QUESTION)

    def bandwidth(self) -> float:
        """Bytes per second that all threads together read from memory."""
        return self._worker.ask("bandwidth")

"""What is measured of a fresh process, with the engines themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from engine.config import EngineConfig
from engine.model.config import ModelConfig
from kvchat.bench.draw import Draw
from kvchat.bench.peers.cells import OneShot, PeakMemory
from kvchat.bench.peers.kvchat_peer import KvchatPeer
from kvchat.bench.peers.python_peer import PythonPeer
from kvchat.bench.peers.transformers import TransformersPeer

START: dict[str, Callable[[Path], PythonPeer]] = {
    "kvchat": lambda model: KvchatPeer(
        EngineConfig(model=str(model), dtype="float32", kv_memory=8_000_000), ("--model", str(model))
    ),
    "transformers": lambda model: TransformersPeer(model, 1),
}


@pytest.mark.parametrize("name", START)
def test_cold_start_and_peak_memory_take_a_fresh_process_and_leave_none(name: str, small_model: Path) -> None:
    draw = Draw("seed", ModelConfig.read(small_model).vocab_size)
    with closing(START[name](small_model)) as peer:
        before = set(psutil.Process().children(recursive=True))
        assert OneShot().measure(peer, draw) > 0.1, "s: less than an interpreter with torch takes"
        assert 100 < PeakMemory(64).measure(peer, draw) < 2000, "MiB"
        assert set(psutil.Process().children(recursive=True)) == before

"""The whole comparison, from what the user asked for to the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

import psutil

from engine.config import EngineConfig
from engine.locate import model_folder
from engine.model.config import ModelConfig
from kvchat.bench.experiment import OnProgress
from kvchat.bench.machine import cpu_name
from kvchat.bench.peers.cells import Cell, Decode
from kvchat.bench.peers.kvchat_peer import KvchatPeer
from kvchat.bench.peers.lineup import Sources, find_peers
from kvchat.bench.peers.report import Machine, Report, Row
from kvchat.bench.peers.rounds import measure


def compare(
    config: EngineConfig,
    flags: Sequence[str],
    sources: Sources,
    cells: Sequence[Cell],
    *,
    rounds: int,
    seed: int,
    on_progress: OnProgress,
) -> Report:
    """Measure kvchat with `config`, which the command line `flags` also give, beside the peers that are here.

    Raises PeerError when kvchat's own engine cannot be started.
    """
    folder = model_folder(config.model)
    with ExitStack() as stack:
        on_progress("starting the engines", 0.0)
        kvchat = KvchatPeer(config, flags)
        stack.callback(kvchat.close)
        threads, context = kvchat.about["threads"], kvchat.about["context_length"]
        peers, missing = find_peers(sources, folder, threads, stack)
        fitting = [cell for cell in cells if cell.room <= context]
        bandwidths: list[float] = []
        rows, failures = measure(
            [kvchat, *peers],
            fitting,
            rounds=rounds,
            seed=seed,
            vocab_size=ModelConfig.read(folder).vocab_size,
            on_progress=on_progress,
            between=lambda: bandwidths.append(kvchat.bandwidth()),
        )
    bandwidth = median(bandwidths)
    for cell, row in zip(fitting, rows, strict=True):
        if isinstance(cell, Decode):
            row.bandwidth_fraction = _bandwidth_fraction(cell, row, kvchat, bandwidth)
    return Report(
        machine=Machine(
            cpu=cpu_name(),
            cores=os.cpu_count() or 1,
            threads=threads,
            memory_bytes=psutil.virtual_memory().total,
            bandwidth_bytes_per_s=bandwidth,
        ),
        model=folder.resolve().name,
        seed=seed,
        rounds=rounds,
        engines={peer.name: peer.version for peer in (kvchat, *peers)},
        rows=rows,
        failures=failures,
        missing=missing,
        left_out=[cell.name for cell in cells if cell not in fitting],
    )


def _bandwidth_fraction(cell: Decode, row: Row, kvchat: KvchatPeer, bandwidth: float) -> float | None:
    """A step reads all weights once, and the keys and values of every sequence."""
    rate = row.median(kvchat.name)
    if rate is None:
        return None
    kv_bytes = cell.sequences * (cell.context + cell.steps / 2) * kvchat.about["kv_token_bytes"]
    fastest = (kvchat.about["weight_bytes"] + kv_bytes) / bandwidth
    return fastest / (cell.sequences / rate)

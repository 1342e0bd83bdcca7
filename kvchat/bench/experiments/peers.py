"""Other engines on the same machine, model and threads. What makes it fair is told in kvchat.bench.peers."""

from __future__ import annotations

import sys
from pathlib import Path

from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.peers.cells import FULL, QUICK
from kvchat.bench.peers.compare import compare
from kvchat.bench.peers.lineup import Sources
from kvchat.bench.peers.peer import PeerError
from kvchat.bench.peers.report import answer, plot

ROUNDS, QUICK_ROUNDS = 5, 1


def run(setup: Setup, sources: Sources | None = None, rounds: int | None = None) -> Result:
    """Raises LeftOut when nothing can be measured."""
    try:
        report = compare(
            setup.config,
            setup.flags,
            sources or Sources(openvino_python=Path(sys.executable)),
            QUICK if setup.quick else FULL,
            rounds=rounds or (QUICK_ROUNDS if setup.quick else ROUNDS),
            seed=setup.seed,
            on_progress=setup.progress,
        )
    except PeerError as error:
        raise LeftOut(str(error)) from None
    measured = report.as_json()
    return Result(
        answer=answer(report),
        table=report.table(),
        plot=plot(report),
        ratios={
            f"{row['name']}, kvchat / {peer}": ratio
            for row in measured["rows"]
            for peer, ratio in row["ratios"].items()
            if ratio is not None
        },
        measured=measured,
        notes=report.notes(),
    )

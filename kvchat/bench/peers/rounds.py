"""The run: rounds over cells over engines, one engine at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvchat.bench.draw import Draw
from kvchat.bench.experiment import OnProgress
from kvchat.bench.peers.cells import Cell
from kvchat.bench.peers.peer import Peer, PeerError
from kvchat.bench.peers.report import Failure, Row


def measure(
    peers: Sequence[Peer],
    cells: Sequence[Cell],
    *,
    rounds: int,
    seed: int,
    vocab_size: int,
    on_progress: OnProgress,
    between: Callable[[], None] = lambda: None,
) -> tuple[list[Row], list[Failure]]:
    """Measure every cell on every peer, `rounds` times after a round that is not counted. `between` is called before
    each round. A peer that fails in a cell is not asked for it again."""
    rows = [Row(cell.name, cell.unit.name, cell.unit.higher_is_better, {}) for cell in cells]
    failures: dict[tuple[str, str], Failure] = {}
    for number in range(rounds + 1):
        between()
        for index, (cell, row) in enumerate(zip(cells, rows, strict=True)):
            for peer in peers:
                if (peer.name, cell.name) in failures:
                    continue
                label = f"round {number} of {rounds}" if number else "warming up"
                on_progress(f"{label}: {cell.name}: {peer.name}", (number + index / len(cells)) / (rounds + 1))
                try:
                    value = cell.measure(peer, Draw(f"{seed} {number} {cell.name}", vocab_size))
                except PeerError as error:
                    failures[peer.name, cell.name] = Failure(peer.name, cell.name, str(error))
                    row.values.pop(peer.name, None)
                    continue
                if number:
                    row.values.setdefault(peer.name, []).append(value)
    return rows, list(failures.values())

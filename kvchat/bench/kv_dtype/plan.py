"""What is measured, and where."""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.bench.kv_dtype.running import TURNS

ROOM = 512
"""Tokens that a timed engine needs behind its prompt."""
TURN_TOKENS = 100
"""Tokens that a turn of the replayed conversation takes at most."""


@dataclass(frozen=True, slots=True)
class Plan:
    windows: tuple[int, ...]
    """Contexts at which the text is read."""
    needles: tuple[int, ...]
    """Contexts in which facts are looked for."""
    turns: int
    decode: tuple[int, ...]
    """Contexts at which decoding is timed."""
    rounds: int

    def within(self, context_length: int) -> Plan:
        """Without what the model cannot hold."""
        return Plan(
            tuple(n for n in self.windows if n <= context_length),
            tuple(n for n in self.needles if n <= context_length),
            min(self.turns, context_length // TURN_TOKENS),
            tuple(n for n in self.decode if n + ROOM <= context_length),
            self.rounds,
        )


FULL = Plan((512, 2048, 4096, 8192), (1024, 4096, 8192), len(TURNS), (4096, 7168), 7)
QUICK = Plan((512, 1024), (512,), 2, (1024,), 3)

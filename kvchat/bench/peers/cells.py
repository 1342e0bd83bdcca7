"""What is measured: a cell is one row of the table, the same question to every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kvchat.bench.draw import Draw
from kvchat.bench.peers.peer import Peer

STEPS = 32
"""Decode steps that are timed, where a cell says nothing else."""
MIB = 1 << 20


class Unit(NamedTuple):
    name: str
    higher_is_better: bool


RATE = Unit("tokens/s", True)
MILLISECONDS = Unit("ms", False)
SECONDS = Unit("s", False)
MEMORY = Unit("MiB", False)


class Cell(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> Unit: ...

    @property
    def room(self) -> int:
        """Tokens that the context must hold."""

    def measure(self, peer: Peer, draw: Draw) -> float:
        """In the cell's unit. Raises PeerError."""


@dataclass(frozen=True, slots=True)
class Decode:
    context: int
    sequences: int = 1
    steps: int = STEPS
    unit: Unit = RATE

    @property
    def name(self) -> str:
        return f"decode, {self.sequences} x {self.context:,}"

    @property
    def room(self) -> int:
        return self.context + self.steps

    def measure(self, peer: Peer, draw: Draw) -> float:
        return peer.decode([draw(self.context) for _ in range(self.sequences)], self.steps)


@dataclass(frozen=True, slots=True)
class Prefill:
    tokens: int
    unit: Unit = RATE

    @property
    def name(self) -> str:
        return f"prefill, {self.tokens:,}"

    @property
    def room(self) -> int:
        return self.tokens + 1

    def measure(self, peer: Peer, draw: Draw) -> float:
        return peer.prefill(draw(self.tokens))


@dataclass(frozen=True, slots=True)
class FirstTokenBehind:
    shared: int
    new: int
    unit: Unit = MILLISECONDS

    @property
    def name(self) -> str:
        return f"TTFT, {self.shared:,} cached + {self.new}"

    @property
    def room(self) -> int:
        return self.shared + self.new + STEPS

    def measure(self, peer: Peer, draw: Draw) -> float:
        persona = [*draw(self.shared)]
        return 1000 * peer.first_token_behind([*persona, *draw(self.new)], [*persona, *draw(self.new)])


@dataclass(frozen=True, slots=True)
class OneShot:
    name: str = "one-shot, cold start"
    unit: Unit = SECONDS
    room: int = 0

    def measure(self, peer: Peer, draw: Draw) -> float:
        return peer.one_shot()


@dataclass(frozen=True, slots=True)
class PeakMemory:
    context: int
    unit: Unit = MEMORY

    @property
    def name(self) -> str:
        return f"peak memory, 1 x {self.context:,}"

    @property
    def room(self) -> int:
        return self.context + STEPS

    def measure(self, peer: Peer, draw: Draw) -> float:
        return peer.peak_memory(draw(self.context), STEPS) / MIB


FULL: Sequence[Cell] = (
    *(Decode(context) for context in (128, 1024, 4096, 7168)),
    *(Decode(512, sequences) for sequences in (1, 4, 8, 16)),
    *(Prefill(tokens) for tokens in (128, 512, 2048, 4096)),
    FirstTokenBehind(1000, 24),
    OneShot(),
    PeakMemory(4096),
)

QUICK: Sequence[Cell] = (
    Decode(128, steps=16),
    Decode(128, 4, steps=16),
    Prefill(512),
    FirstTokenBehind(512, 24),
)
"""Without what takes a fresh process of every engine each time."""

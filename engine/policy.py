"""How the scheduler spends KV memory and rows: what serving wants by default, and what that is compared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Continuous batching over blocks that are taken as a sequence grows, unless said otherwise."""

    reserve: int = 0
    """Tokens that a sequence gets blocks for when it is admitted, whatever it will need: memory set aside for the
    longest sequence there may be."""
    static_batches: bool = False
    """A batch is made of what waits, and nothing joins it until its last sequence has ended."""
    keep_kv: bool = True
    """Without, a sequence gives its blocks back after each token and computes all of itself for the next."""

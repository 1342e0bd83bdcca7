"""How the torch kernels cut the attention of a step into few calls, decided once for all its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.contract import Span

QUERY_TILE = 256
"""Query rows of a prefill chunk attended in one call: keys after the last of them are skipped."""
SHORT = 256
"""Decodes over fewer keys than this share a call whatever their lengths: padding costs less than another call."""
SHARED_KEYS = 4096
"""Padded keys of all decodes in one call: what a call gathers should stay in the CPU's cache."""


@dataclass(slots=True)
class Tile:
    """The queries of one call: T rows of each of B sequences. Each sequence's keys are gathered as n whole blocks."""

    rows: slice
    """Rows of the step, B * T."""
    batch: int
    blocks: Tensor
    """[B * n] int64, sequence by sequence."""
    keys: slice
    """Which of its n * block_size gathered rows a sequence attends to, S of them."""
    mask: Tensor | None = None
    """Added to the scores [B, T * G, S] (or to what broadcasts to it): 0 where a query sees a key, else -inf."""
    stale: Tensor | None = None
    """[...] int64: gathered rows, of B * n * block_size, within `keys` that no live token was written to."""


class _Reach(NamedTuple):
    """What some queries of one sequence see: rows [first, last) of these blocks."""

    blocks: list[int]
    first: int
    last: int


def plan_tiles(
    spans: Sequence[Span],
    block_size: int,
    group_size: int,
    window: int | None,
    dtype: torch.dtype,
    device: torch.device,
) -> list[Tile]:
    """Tiles in the order of the rows. See `kernels.contract.Kernels.plan_attention`."""

    def reach(span: Span, begin: int, end: int) -> _Reach:
        """Keys that the queries at positions [begin, end) see."""
        oldest = 0 if window is None else max(0, begin + 1 - window)
        skipped = oldest // block_size
        blocks = list(span.block_table[skipped : -(-end // block_size)])
        return _Reach(blocks, oldest - skipped * block_size, end - skipped * block_size)

    prefills = [span for span in spans if span.rows > 1]
    if prefills:
        tallest = min(QUERY_TILE, max(span.rows for span in prefills))
        mask = _causal_mask(tallest, max(span.context for span in prefills), window, dtype, device)
        mask = mask.repeat_interleave(group_size, 0)

    tiles: list[Tile] = []
    row = 0
    for members in _shared_calls(spans, window):
        if members[0].rows == 1:
            reaches = [reach(span, span.context - 1, span.context) for span in members]
            tiles.append(_decode_tile(row, reaches, block_size, dtype, device))
            row += len(members)
            continue
        [span] = members
        for begin in range(span.context - span.rows, span.context, QUERY_TILE):
            end = min(begin + QUERY_TILE, span.context)
            blocks, first, last = reach(span, begin, end)
            rows = slice(row, row + end - begin)
            # Aligned at the bottom right, one mask is the mask of every tile.
            corner = mask[-(end - begin) * group_size :, first - last :]
            tiles.append(Tile(rows, 1, _indices(blocks, device), slice(first, last), corner))
            row = rows.stop
    return tiles


def _shared_calls(spans: Sequence[Span], window: int | None) -> Iterator[list[Span]]:
    """Each prefill chunk alone; neighbouring decodes together as long as at most half of the keys are padding."""
    members: list[Span] = []
    shortest = longest = 0
    for span in spans:
        length = span.context if window is None else min(span.context, window)
        shortest, longest = min(shortest, length), max(longest, length)
        fits = longest <= max(SHORT, 2 * shortest) and longest * (len(members) + 1) <= SHARED_KEYS
        if members and not (fits and span.rows == members[0].rows == 1):
            yield members
            members = []
        if not members:
            shortest = longest = length
        members.append(span)
    if members:
        yield members


def _decode_tile(
    row: int, reaches: Sequence[_Reach], block_size: int, dtype: torch.dtype, device: torch.device
) -> Tile:
    widest = max((reach.blocks for reach in reaches), key=len)
    n = len(widest)
    # Where there is something to pad, the widest has several blocks, so its first one is full: safe to repeat.
    blocks = [block for own, _, _ in reaches for block in (*own, *widest[:1] * (n - len(own)))]
    tile = Tile(slice(row, row + len(reaches)), len(reaches), _indices(blocks, device), slice(0, n * block_size))
    bounds = {(first, last) for _, first, last in reaches}
    if len(bounds) == 1:
        tile.keys = slice(*bounds.pop())
        return tile
    key = torch.arange(n * block_size, device=device)
    first, last = _indices([reach[1:] for reach in reaches], device).T.unsqueeze(-1)
    hidden = (key < first) | (key >= last)
    tile.mask = _additive(hidden, dtype).unsqueeze(1)
    tile.stale = _indices(
        [
            b * n * block_size + stale
            for b, (own, _, last) in enumerate(reaches)
            for stale in range(last, len(own) * block_size)
        ],
        device,
    )
    return tile


def _causal_mask(rows: int, keys: int, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[rows, keys] for the last `rows` of `keys` tokens."""
    key = torch.arange(keys, device=device)
    query = torch.arange(keys - rows, keys, device=device).unsqueeze(1)
    hidden = key > query
    if window is not None:
        hidden |= key <= query - window
    return _additive(hidden, dtype)


def _additive(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))


def _indices(values: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)

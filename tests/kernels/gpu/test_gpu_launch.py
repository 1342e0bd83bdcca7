"""The work that attention is cut into: complete, bounded, and enough to fill a GPU."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.gpu.launch import Shape, Work, decode_shape, max_slots, plan_work, prefill_shape
from kernels.kv_format import Groups

HALF = torch.float16
SM_COUNTS = st.integers(1, 200)
KV_HEADS = st.sampled_from((1, 2, 3, 4, 8, 16, 32))
STORAGES = st.sampled_from((HALF, Groups(8, 16), Groups(4, 16)))
WINDOWS = st.one_of(st.none(), st.integers(1, 5000))
DECODES = st.lists(st.tuples(st.just(1), st.integers(1, 40_000)), min_size=1, max_size=64)


@st.composite
def shapes(draw: st.DrawFn, prefill: bool | None = None) -> Shape:
    if prefill is None:
        prefill = draw(st.booleans())
    choose = prefill_shape if prefill else decode_shape
    group, head_dim = draw(st.sampled_from((1, 3, 4, 7, 8, 71))), draw(st.sampled_from((32, 64, 80, 128, 256)))
    dtype = draw(st.sampled_from((torch.float32, torch.float16, torch.bfloat16)))
    return choose(group, head_dim, draw(STORAGES), draw(STORAGES), dtype, hopper=draw(st.booleans()))


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[int, int]]:
    contexts = draw(st.lists(st.integers(1, 20_000), min_size=1, max_size=8))
    return [(draw(st.integers(1, min(600, context))), context) for context in contexts]


def shares(work: Work, n_kv_head: int, shape: Shape, sm_count: int) -> float:
    """Keys that each of the programs that fill the GPU would have if they had as many."""
    return int((work.items[:, 5] - work.items[:, 4]).sum()) * n_kv_head / (shape.per_sm * sm_count)


@given(spans(), shapes(), KV_HEADS, WINDOWS, SM_COUNTS)
def test_every_query_meets_every_key_it_sees_once(
    spans: list[tuple[int, int]], shape: Shape, n_kv_head: int, window: int | None, sm_count: int
) -> None:
    work = plan_work(spans, 5, n_kv_head, shape, window, sm_count)
    tiles: dict[tuple[int, ...], list[list[int]]] = {}
    for sequence, first, rows, position, begin, end, slot, _ in work.items.tolist():
        assert 0 < rows <= shape.tile_rows and begin < end
        tiles.setdefault((first, rows, sequence, position), []).append([begin, end, slot])
    merges = {(first, rows): range(slot, slot + count) for first, rows, slot, count in work.merges.tolist()}

    row = 5
    queries = [(i, context - rows + j, context) for i, (rows, context) in enumerate(spans) for j in range(rows)]
    for (first, rows, sequence, position), pieces in sorted(tiles.items()):
        assert first == row
        for j in range(rows):
            assert queries[row - 5][:2] == (sequence, position + j)
            row += 1
        pieces.sort()
        assert pieces[0][0] == (0 if window is None else max(0, position + 1 - window))
        assert pieces[-1][1] == position + rows
        assert all(before[1] == after[0] for before, after in pairwise(pieces))
        assert [slot for *_, slot in pieces] == list(merges.pop((first, rows), [-1]))
    assert row == 5 + len(queries) and not merges


@given(spans(), shapes(), KV_HEADS, WINDOWS, SM_COUNTS)
def test_partial_results_fit_their_workspace_and_have_one_slot_each(
    spans: list[tuple[int, int]], shape: Shape, n_kv_head: int, window: int | None, sm_count: int
) -> None:
    work = plan_work(spans, 0, n_kv_head, shape, window, sm_count)
    slots = [slot for slot in work.items[:, 6].tolist() if slot >= 0]
    assert sorted(slots) == list(range(len(slots)))
    assert len(slots) <= max_slots(n_kv_head, shape, sm_count)


@given(DECODES, shapes(prefill=False), KV_HEADS, WINDOWS, SM_COUNTS)
def test_a_captured_launch_has_room_for_decodes_of_any_lengths(
    spans: list[tuple[int, int]], shape: Shape, n_kv_head: int, window: int | None, sm_count: int
) -> None:
    slots = max_slots(n_kv_head, shape, sm_count)
    work = plan_work(spans, 0, n_kv_head, shape, window, sm_count)
    padded = work.padded(64, slots)
    assert padded.items.shape == (64 + slots, 8) and padded.merges.shape == (slots // 2, 4)
    for rows, own in zip(padded, work, strict=True):
        assert (rows[: len(own)] == own).all() and not rows[len(own) :].any()


@given(shapes(), KV_HEADS, SM_COUNTS, st.integers(1, 4096))
def test_one_sequence_of_4k_leaves_at_most_half_of_the_sms_idle(
    shape: Shape, n_kv_head: int, sm_count: int, rows: int
) -> None:
    rows = 1 if shape.tile_rows == 1 else rows
    work = plan_work([(rows, 4096)], 0, n_kv_head, shape, None, sm_count)
    # A program reads block_n keys at least.
    most = n_kv_head * -(-rows // shape.tile_rows) * (4096 // shape.block_n)
    assert len(work.items) * n_kv_head >= min(sm_count // 2, most)


@given(DECODES, shapes(prefill=False), KV_HEADS, SM_COUNTS)
def test_no_program_outlasts_the_others_by_far_however_ragged_the_batch(
    spans: list[tuple[int, int]], shape: Shape, n_kv_head: int, sm_count: int
) -> None:
    work = plan_work(spans, 0, n_kv_head, shape, None, sm_count)
    lengths = (work.items[:, 5] - work.items[:, 4]).tolist()
    assert lengths[0] <= 1.5 * shares(work, n_kv_head, shape, sm_count) + shape.block_n
    assert lengths == sorted(lengths, reverse=True)


@given(st.integers(1, 8), st.integers(1, 40_000), shapes(prefill=False), KV_HEADS)
def test_a_window_is_all_that_is_read(sequences: int, context: int, shape: Shape, n_kv_head: int) -> None:
    windowed = plan_work([(1, context)] * sequences, 0, n_kv_head, shape, 512, 132)
    short = plan_work([(1, min(context, 512))] * sequences, 0, n_kv_head, shape, None, 132)
    assert len(windowed.items) == len(short.items)


def test_decodes_that_fill_the_gpu_are_not_split() -> None:
    shape = decode_shape(4, 128, HALF, HALF, HALF, hopper=True)
    work = plan_work([(1, 8192)] * 64, 0, 8, shape, None, 132)
    assert len(work.items) == 64 and len(work.merges) == 0


def test_no_sequence_is_no_work() -> None:
    work = plan_work([], 0, 8, decode_shape(4, 128, HALF, HALF, HALF), None, 132)
    assert len(work.items) == len(work.merges) == 0


@pytest.mark.parametrize("choose", [decode_shape, prefill_shape])
@pytest.mark.parametrize("group", [1, 3, 4, 7, 8, 71, 128])
def test_a_tile_holds_the_query_heads_of_its_rows(choose: type[Shape], group: int) -> None:
    shape = choose(group, 64, HALF, HALF, HALF)
    assert shape.tile_rows >= 1 and group * shape.tile_rows <= shape.block_m
    assert shape.block_m & (shape.block_m - 1) == 0 and shape.block_m >= 16

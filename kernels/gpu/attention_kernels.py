"""The kernels of paged attention: `attend` folds the keys of one item of work into its tile, `merge` joins the partial
results of split tiles (Flash-Decoding, Dao et al. 2023). The softmax is the online one of FlashAttention (Dao et al.
2022), with base-2 exponentials.

A plane's blocks hold, as in `kernels.reference`, [SLOTS, HEADS] heads one after the other, then, of groups, as many
[SIZE / GROUP] pairs of scale and offset.
"""

from __future__ import annotations

import triton
import triton.language as tl

ITEM, MERGE = tl.constexpr(8), tl.constexpr(4)
"""Numbers of an item and of a merge, see `kernels.gpu.launch.Work`."""


@triton.jit
def load_heads(
    plane,
    parameters,
    block,
    row,
    live,
    dtype: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    BITS: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One head's keys or values of N tokens, [N, PADDED] in `dtype`; zero where a token is not `live` [N].

    block [N] int64; row [N]: of the ROWS = SLOTS * HEADS heads of the block. SIZE values are stored, as floats where
    BITS is 0.
    """
    if BITS == 0:
        heads = load_rows(plane, block * (ROWS * SIZE) + row * SIZE, live, SIZE, PADDED)
    else:
        WIDTH: tl.constexpr = SIZE * BITS // 8
        GROUPS: tl.constexpr = SIZE // GROUP
        BLOCK_BYTES: tl.constexpr = ROWS * (WIDTH + 4 * GROUPS)
        heads = load_rows(plane, block * BLOCK_BYTES + row * WIDTH, live, WIDTH, PADDED * BITS // 8)
        if BITS == 4:
            heads = tl.reshape(tl.join(heads & 15, heads >> 4), [heads.shape[0], PADDED])
        heads = heads.to(tl.float32)
        # A scale and an offset are read as one word.
        word = block * (BLOCK_BYTES // 4) + (ROWS * WIDTH // 4) + row * GROUPS
        if GROUPS == 1:
            scale, offset = unpack(tl.load(parameters + word, live, 0))
            heads = heads * scale[:, None] + offset[:, None]
        else:
            scale, offset = unpack(load_rows(parameters, word, live, GROUPS, PADDED // GROUP))
            heads = tl.reshape(heads, [heads.shape[0], PADDED // GROUP, GROUP])
            heads = tl.reshape(heads * scale[:, :, None] + offset[:, :, None], [heads.shape[0], PADDED])
    return heads.to(dtype)


@triton.jit
def load_rows(source, start, live, SIZE: tl.constexpr, PADDED: tl.constexpr):
    """[N, PADDED], of which SIZE values from start [N] on are read; zero where not live [N]."""
    column = tl.arange(0, PADDED)
    inside = live[:, None]
    if SIZE != PADDED:
        inside = inside & (column < SIZE)[None, :]
    return tl.load(source + start[:, None] + column[None, :], inside, 0)


@triton.jit
def unpack(pair):
    """Two float16 in the halves of an int32, as float32."""
    low = (pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True)
    high = (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    return low.to(tl.float32), high.to(tl.float32)


@triton.jit
def fold(
    acc,
    total,
    peak,
    q,
    at,
    end,
    seen,
    head,
    table,
    keys,
    key_parameters,
    values,
    value_parameters,
    scale,
    MASKED: tl.constexpr,
    DECODES: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    HEADS: tl.constexpr,
    SLOTS: tl.constexpr,
    KEY_BITS: tl.constexpr,
    KEY_GROUP: tl.constexpr,
    VALUE_BITS: tl.constexpr,
    VALUE_GROUP: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Keys [at, at + BLOCK_N) into acc [M, PADDED], which is scaled by 2^peak and whose weights sum up to `total`.

    Not MASKED means that all rows see all of these keys; else those before `end`, up to their own position, `seen` [M].
    """
    key = at + tl.arange(0, BLOCK_N)
    live = key < end
    block = tl.load(table + key // SLOTS, live, 0).to(tl.int64)
    row = key % SLOTS * HEADS + head
    ROWS: tl.constexpr = SLOTS * HEADS
    k = load_heads(keys, key_parameters, block, row, live, q.dtype, SIZE, PADDED, ROWS, KEY_BITS, KEY_GROUP)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if SOFTCAP > 0:
        # tanh, from the one exponential that there is; `scale` made the scores fit.
        scores = (SOFTCAP * 1.4426950408889634) * (1 - 2 / (tl.exp2(scores) + 1))
    if MASKED:
        visible = live[None, :]
        if not DECODES:
            visible = visible & (key[None, :] <= seen[:, None])
            if WINDOW:
                visible = visible & (key[None, :] > seen[:, None] - WINDOW)
        scores = tl.where(visible, scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, 1))
    # A row that has seen no key yet has no peak.
    base = tl.where(new_peak == float("-inf"), 0.0, new_peak) if MASKED else new_peak
    weights = tl.exp2(scores - base[:, None])
    fade = tl.exp2(peak - base)
    v = load_heads(values, value_parameters, block, row, live, q.dtype, SIZE, PADDED, ROWS, VALUE_BITS, VALUE_GROUP)
    acc = tl.dot(weights.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
    return acc, total * fade + tl.sum(weights, 1), new_peak


@triton.jit
def attend(
    q,
    out,
    keys,
    key_parameters,
    values,
    value_parameters,
    block_tables,
    items,
    partial,
    partial_lse,
    scale,
    q_stride,
    table_width,
    TILE_ROWS: tl.constexpr,
    PACKED: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    HEADS: tl.constexpr,
    SLOTS: tl.constexpr,
    KEY_BITS: tl.constexpr,
    KEY_GROUP: tl.constexpr,
    VALUE_BITS: tl.constexpr,
    VALUE_GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One item of one key/value head: program (head, item). PACKED query heads share it; row i of a tile is query row
    i // PACKED."""
    head = tl.program_id(0)
    item = items + tl.program_id(1) * ITEM
    sequence, first, rows = tl.load(item), tl.load(item + 1).to(tl.int64), tl.load(item + 2)
    position, begin, end, slot = tl.load(item + 3), tl.load(item + 4), tl.load(item + 5), tl.load(item + 6)
    if rows == 0:
        return
    i, column = tl.arange(0, BLOCK_M), tl.arange(0, PADDED)
    row = i // PACKED
    q_head = head * PACKED + i % PACKED
    inside = (row < rows)[:, None]
    if PADDED != SIZE:
        inside = inside & (column < SIZE)[None, :]
    query = tl.load(q + ((first + row) * q_stride + q_head * SIZE)[:, None] + column[None, :], inside, 0.0)

    acc = tl.zeros([BLOCK_M, PADDED], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    table = block_tables + sequence.to(tl.int64) * table_width
    seen = position + row
    DECODES: tl.constexpr = TILE_ROWS == 1
    masked = begin
    if not DECODES and not WINDOW:
        # The oldest query of the tile sees all keys before this one.
        masked = begin + tl.maximum(tl.minimum(end, position + 1) - begin, 0) // BLOCK_N * BLOCK_N
        for at in tl.range(begin, masked, BLOCK_N):
            acc, total, peak = fold(
                acc, total, peak, query, at, end, seen, head,
                table, keys, key_parameters, values, value_parameters, scale,
                False, DECODES, WINDOW, SOFTCAP, SIZE, PADDED, HEADS, SLOTS,
                KEY_BITS, KEY_GROUP, VALUE_BITS, VALUE_GROUP, BLOCK_N,
            )  # fmt: skip
    for at in tl.range(masked, end, BLOCK_N):
        acc, total, peak = fold(
            acc, total, peak, query, at, end, seen, head,
            table, keys, key_parameters, values, value_parameters, scale,
            True, DECODES, WINDOW, SOFTCAP, SIZE, PADDED, HEADS, SLOTS,
            KEY_BITS, KEY_GROUP, VALUE_BITS, VALUE_GROUP, BLOCK_N,
        )  # fmt: skip

    acc = acc / tl.where(total == 0, 1.0, total)[:, None]
    if slot < 0:
        target = ((first + row) * (HEADS * PACKED) + q_head) * SIZE
        tl.store(out + target[:, None] + column[None, :], acc.to(out.dtype.element_ty), inside)
    else:
        target = (slot.to(tl.int64) * TILE_ROWS + row) * (HEADS * PACKED) + q_head
        tl.store(partial + (target * SIZE)[:, None] + column[None, :], acc, inside)
        # Of a row that saw no key: log2(0), which is -inf as well.
        lse = tl.where(total == 0, float("-inf"), peak + tl.log2(tl.where(total == 0, 1.0, total)))
        tl.store(partial_lse + target, lse, row < rows)


@triton.jit
def merge(
    out,
    merges,
    partial,
    partial_lse,
    TILE_ROWS: tl.constexpr,
    N_HEAD: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """One head of one query row: program (head, merge, row of the tile)."""
    head, row = tl.program_id(0), tl.program_id(2)
    entry = merges + tl.program_id(1) * MERGE
    first, rows, slot, count = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2), tl.load(entry + 3)
    if row >= rows:
        return
    column = tl.arange(0, PADDED)
    inside = column < SIZE
    acc = tl.zeros([PADDED], tl.float32)
    total = 0.0
    peak = float("-inf")
    for at in range(0, count, AT_ONCE):
        part = at + tl.arange(0, AT_ONCE)
        source = ((slot + part).to(tl.int64) * TILE_ROWS + row) * N_HEAD + head
        lse = tl.load(partial_lse + source, part < count, float("-inf"))
        x = tl.load(
            partial + (source * SIZE)[:, None] + column[None, :], (part < count)[:, None] & inside[None, :], 0.0
        )
        new_peak = tl.maximum(peak, tl.max(lse, 0))
        base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weights = tl.exp2(lse - base)
        fade = tl.exp2(peak - base)
        acc = acc * fade + tl.sum(weights[:, None] * x, 0)
        total = total * fade + tl.sum(weights, 0)
        peak = new_peak
    target = ((first + row).to(tl.int64) * N_HEAD + head) * SIZE
    tl.store(out + target + column, (acc / total).to(out.dtype.element_ty), inside)

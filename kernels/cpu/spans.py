"""Attention of a step, span by span, compiled: shared out among the threads, and joined again."""

from __future__ import annotations

import math

import numpy as np
from numba import carray

from kernels.cpu.attention import CHUNK, attend_queries, attention_scratch
from kernels.cpu.attention_ops import AT_ONCE, multiplies_pairs
from kernels.cpu.compiler import compiled
from kernels.cpu.groups import rotate
from kernels.cpu.linear import SUMS, quantize_row
from kernels.cpu.places import SPAN_PLACES, Layer, Model, Span, Work
from kernels.cpu.pointers import as_f32, as_i64, as_u32
from kernels.cpu.team import take

FEW_ROWS = 16
"""Rows of a sequence up to which its keys are shared out, not its rows; as many rows are a tile otherwise."""


@compiled
def _query_bytes(model):
    """Of one head's query."""
    return model[Model.HEAD_DIM] * (2 if model[Model.KV_BFLOAT16] != 0 and multiplies_pairs() else 4)


@compiled
def _first_chunk(span, window):
    """The first chunk that any row of a span sees."""
    return max(0, span[Span.CONTEXT] - span[Span.ROWS] + 1 - window) // CHUNK if window else 0


@compiled
def _chunks(span, window):
    return -(-span[Span.CONTEXT] // CHUNK) - _first_chunk(span, window)


@compiled
def attend(model, layer, work, scratch, counter):
    """This thread's share of all spans: chunks of keys into parts and states, tiles of rows into the output layer's
    input."""
    spans = carray(as_i64(work[Work.SPAN]), (work[Work.SPANS], SPAN_PLACES))
    wanted = take(counter, 1)
    unit, part, row = 0, 0, 0
    for s in range(work[Work.SPANS]):
        span = spans[s]
        rows = span[Span.ROWS]
        few = rows <= FEW_ROWS
        units = _chunks(span, layer[Layer.WINDOW]) if few else -(-rows // FEW_ROWS)
        while wanted < unit + units:
            index = wanted - unit
            if few:
                _attend_chunk(model, layer, work, scratch, span, row, index, part + index * rows)
            else:
                _attend_tile(model, layer, work, scratch, span, row, index * FEW_ROWS)
            wanted = take(counter, 1)
        unit += units
        if few:
            part += units * rows
        row += rows


@compiled
def _attend_chunk(model, layer, work, scratch, span, row, index, part):
    n_head, n_kv_head, size = model[Model.N_HEAD], model[Model.N_KV_HEAD], model[Model.HEAD_DIM]
    q_bytes = _query_bytes(model)
    begin = (_first_chunk(span, layer[Layer.WINDOW]) + index) * CHUNK
    end = min(begin + CHUNK, span[Span.CONTEXT])
    for r in range(span[Span.ROWS]):
        out = work[Work.PARTS] + 4 * (part + r) * n_head * size
        states = work[Work.STATES] + 8 * (part + r) * n_head
        _clear(out, states, n_head, size)
        attend_queries(
            model,
            layer,
            span,
            begin,
            end,
            work[Work.Q] + (row + r) * n_head * q_bytes,
            q_bytes,
            n_head // n_kv_head,
            span[Span.CONTEXT] - span[Span.ROWS] + r,
            out,
            states,
            scratch,
        )


@compiled
def _attend_tile(model, layer, work, scratch, span, row, first):
    """The rows of a span from `first` on, over all keys that they see."""
    n_head, n_kv_head, size = model[Model.N_HEAD], model[Model.N_KV_HEAD], model[Model.HEAD_DIM]
    group, q_bytes = n_head // n_kv_head, _query_bytes(model)
    rows = min(FEW_ROWS, span[Span.ROWS] - first)
    position = span[Span.CONTEXT] - span[Span.ROWS] + first
    window = layer[Layer.WINDOW]
    begin = max(0, position + 1 - window) // AT_ONCE * AT_ONCE if window else 0
    # Of each key/value head, its queries of all rows: [n_kv_head, rows, group, head_dim].
    q = scratch + 4 * attention_scratch(size)
    out = q + FEW_ROWS * n_head * q_bytes
    states = out + 4 * FEW_ROWS * n_head * size
    line = states + 8 * FEW_ROWS * n_head
    words = group * q_bytes // 4
    source = carray(as_u32(work[Work.Q] + (row + first) * n_head * q_bytes), (rows, n_kv_head, words))
    target = carray(as_u32(q), (n_kv_head, rows, words))
    for head in range(n_kv_head):
        for r in range(rows):
            target[head, r] = source[r, head]
    _clear(out, states, rows * n_head, size)
    attend_queries(model, layer, span, begin, position + rows, q, q_bytes, rows * group, position, out, states, scratch)
    outputs = carray(as_f32(out), (n_kv_head, rows, group, size))
    sums = carray(as_f32(states), (n_kv_head, rows, group, 2))
    joined = carray(as_f32(line), (n_kv_head, group, size))
    for r in range(rows):
        for head in range(n_kv_head):
            for g in range(group):
                scale = np.float32(1) / sums[head, r, g, 1]
                for i in range(size):
                    joined[head, g, i] = outputs[head, r, g, i] * scale
        _rotate_back(model, line)
        quantize_row(line, n_head * size, work, row + first + r)


@compiled
def _clear(out, states, heads, size):
    carray(as_f32(out), (heads * size,))[:] = np.float32(0)
    state = carray(as_f32(states), (heads, 2))
    state[:, 0] = np.float32(-np.inf)
    state[:, 1] = np.float32(0)


@compiled
def _rotate_back(model, out):
    """Of a row, float32 [n_head, head_dim], where the values were rotated."""
    if model[Model.VALUE_ROTATED]:
        for head in range(model[Model.N_HEAD]):
            rotate(out + 4 * head * model[Model.HEAD_DIM], model[Model.HEAD_DIM])


@compiled(fastmath=SUMS)
def merge(model, layer, work, scratch, me, members):
    """Join the chunks of each row, by the log-sum-exp of their scores, into the output layer's input."""
    n_head, size = model[Model.N_HEAD], model[Model.HEAD_DIM]
    spans = carray(as_i64(work[Work.SPAN]), (work[Work.SPANS], SPAN_PLACES))
    out = carray(as_f32(scratch), (n_head, size))
    row, part = 0, 0
    for s in range(work[Work.SPANS]):
        span = spans[s]
        rows = span[Span.ROWS]
        if rows > FEW_ROWS:
            row += rows
            continue
        chunks = _chunks(span, layer[Layer.WINDOW])
        parts = carray(as_f32(work[Work.PARTS] + 4 * part * n_head * size), (chunks, rows, n_head, size))
        states = carray(as_f32(work[Work.STATES] + 8 * part * n_head), (chunks, rows, n_head, 2))
        for r in range(rows):
            if (row + r) % members != me:
                continue
            for head in range(n_head):
                largest = states[0, r, head, 0]
                for c in range(1, chunks):
                    largest = max(largest, states[c, r, head, 0])
                total = np.float32(0)
                for i in range(size):
                    out[head, i] = np.float32(0)
                for c in range(chunks):
                    if states[c, r, head, 1] == 0:
                        continue
                    weight = np.float32(math.exp(states[c, r, head, 0] - largest))
                    total += weight * states[c, r, head, 1]
                    for i in range(size):
                        out[head, i] += weight * parts[c, r, head, i]
                for i in range(size):
                    out[head, i] /= total
            _rotate_back(model, scratch)
            quantize_row(scratch, n_head * size, work, row + r)
        row += rows
        part += chunks * rows

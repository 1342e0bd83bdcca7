"""A whole step of the decoder in one native call: few rows, each a token of some sequence, over the paged cache.

Rows are few where each weight is read once for all of them and the arithmetic hides behind that reading: decodes, and
short ends of prompts. Activations are float32 between the packed layers and int8 in groups of 32 inside them.

`Model`, `Layer`, `Work` and `Span` name the places in the arrays of int64 that describe a model and a step's work;
most of what they hold are addresses. Every row buffer of floats starts its rows at multiples of 32 values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum, auto
from typing import Any

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

from kernels.cpu.attention_ops import attend_16
from kernels.cpu.ir import Builder
from kernels.cpu.linear_ops import gate_16, make_tile_dot, quantize_group
from kernels.cpu.packing import GROUP, TILE
from kernels.cpu.team import JOB, LINE, MEMBERS, atomic_load, await_call, barrier, take


class _Place(IntEnum):
    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class Model(_Place):
    """Sizes, and the addresses of what does not change from step to step."""

    N_LAYER = auto()
    HIDDEN = auto()
    N_HEAD = auto()
    N_KV_HEAD = auto()
    HEAD_DIM = auto()
    INNER = auto()
    VOCAB = auto()
    GELU = auto()
    BLOCK_SIZE = auto()
    KV_BFLOAT16 = auto()
    """Whether the cache is in bfloat16, else it is in float32."""
    EPS = auto()
    """float32 [1]"""
    LAYERS = auto()
    """int64 [n_layer, len(Layer)]"""
    NORM = auto()
    HEAD = auto()
    HEAD_BITS = auto()


class Layer(_Place):
    """One layer: norms and biases are float32, 0 where there is none; packed weights with their bits."""

    ATTENTION_NORM = auto()
    QKV = auto()
    QKV_BITS = auto()
    QKV_BIAS = auto()
    Q_NORM = auto()
    K_NORM = auto()
    OUT = auto()
    OUT_BITS = auto()
    OUT_BIAS = auto()
    MLP_NORM = auto()
    GATE_UP = auto()
    GATE_UP_BITS = auto()
    GATE_UP_BIAS = auto()
    DOWN = auto()
    DOWN_BITS = auto()
    DOWN_BIAS = auto()
    WINDOW = auto()
    """Keys that a query sees at most, 0 for all."""
    KEYS = auto()
    VALUES = auto()


class Work(_Place):
    """One step: R rows, S spans, N rows whose logits are asked for."""

    MODEL = auto()
    ROWS = auto()
    SPANS = auto()
    LOGITS = auto()
    SPAN = auto()
    """int64 [S, len(Span)]"""
    SLOT = auto()
    """int64 [R]"""
    COS = auto()
    SIN = auto()
    """float32 [R, head_dim], as `kernels.contract.Kernels.rotary_` takes them."""
    LOGIT_ROW = auto()
    """int64 [N]"""
    X = auto()
    """float32 [R, hidden]: the embeddings, overwritten."""
    OUT = auto()
    """float32 [N, vocab]"""
    QKV = auto()
    Q = auto()
    """float32 [R, n_head, head_dim as whole vectors], zero beyond head_dim."""
    CODES = auto()
    SCALES = auto()
    SUMS = auto()
    """The quantized input of the linear layer that comes next."""
    PARTS = auto()
    """float32 [units, n_head, head_dim as whole vectors]: attention over one chunk of keys, see `attend_16`."""
    STATES = auto()
    """float32 [units, n_head, 2]"""
    COUNTERS = auto()
    """int64 [5 n_layer + 1], zeros."""
    SCRATCH = auto()
    SCRATCH_BYTES = auto()
    """Of each thread; see `scratch_bytes`."""


class Span(_Place):
    """One sequence's rows; see `kernels.contract.Span`."""

    ROWS = auto()
    CONTEXT = auto()
    TABLE = auto()
    """int64 block ids."""


ROWS_AT_ONCE = 4
CHUNK = 256
"""Keys that one thread attends to at a time, in whole blocks."""
VECTOR = 16

MODEL_PLACES, LAYER_PLACES, WORK_PLACES, SPAN_PLACES = (len(places) for places in (Model, Layer, Work, Span))

_dot4x1, _dot4x2, _dot4x4 = (make_tile_dot(4, rows) for rows in (1, 2, 4))
_dot8x1, _dot8x2, _dot8x4 = (make_tile_dot(8, rows) for rows in (1, 2, 4))

_SUMS = {"reassoc", "contract", "nsz"}


def _pointer_to(kind: Any) -> Any:
    @intrinsic  # type: ignore[misc]
    def pointer(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Builder, signature: Any, arguments: Sequence[Any]) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), codegen

    return pointer


_as_f32, _as_i64, _as_u16, _as_u32 = (
    _pointer_to(kind) for kind in (types.float32, types.int64, types.uint16, types.uint32)
)


def chunk_keys(block_size: int) -> int:
    """Keys of one chunk of attention."""
    return max(1, CHUNK // block_size) * block_size


def scratch_bytes(hidden: int, attended: int, rows: int, block_values: int) -> int:
    """What each thread needs: a row, or tiles of outputs of all rows, or a block of keys and one of values."""
    tiles = 4 * rows * TILE + GROUP
    return 4 * _padded.py_func(max(hidden + GROUP, attended + GROUP, tiles, 2 * block_values), TILE)


@njit(nogil=True, cache=True)
def _padded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@njit(nogil=True, cache=True)
def _dot(tile, bits, groups, codes, scales, sums, rows, out):  # type: ignore[no-untyped-def]
    """A tile of outputs of all rows, float32 [rows, 16]."""
    row = 0
    while row < rows:
        c, s, m, o = codes + row * groups * GROUP, scales + row * groups * 4, sums + row * groups * 4, out + row * 64
        if rows - row >= 4:
            if bits == 4:
                _dot4x4(tile, groups, c, s, m, o)
            else:
                _dot8x4(tile, groups, c, s, m, o)
            row += 4
        elif rows - row >= 2:
            if bits == 4:
                _dot4x2(tile, groups, c, s, m, o)
            else:
                _dot8x2(tile, groups, c, s, m, o)
            row += 2
        else:
            if bits == 4:
                _dot4x1(tile, groups, c, s, m, o)
            else:
                _dot8x1(tile, groups, c, s, m, o)
            row += 1


@njit(nogil=True, cache=True)
def _tile_bytes(groups, bits):  # type: ignore[no-untyped-def]
    return groups * TILE * (GROUP * bits // 8 + (4 if bits == 4 else 2))


@njit(nogil=True, cache=True)
def _share(units, members):  # type: ignore[no-untyped-def]
    """Units to take at once: few enough that the threads end together."""
    return max(1, units // (8 * members))


@njit(nogil=True, cache=True)
def _linear(work, scratch, counter, members, weight, bits, bias, inputs, outputs, rows, target, stride, accumulate):  # type: ignore[no-untyped-def]
    """This thread's share of target [rows, stride] (+)= input @ weight.T + bias."""
    groups = _padded(inputs, GROUP) // GROUP
    tiles = _padded(outputs, TILE) // TILE
    size = _tile_bytes(groups, bits)
    share = _share(tiles, members)
    y = carray(_as_f32(target), (rows, stride))
    part = carray(_as_f32(scratch), (rows, TILE))
    b = carray(_as_f32(bias), (outputs,))
    begin = take(counter, share)
    while begin < tiles:
        for tile in range(begin, min(begin + share, tiles)):
            _dot(weight + tile * size, bits, groups, work[Work.CODES], work[Work.SCALES], work[Work.SUMS], rows, scratch)
            first = tile * TILE
            count = min(TILE, outputs - first)
            if bias != 0:
                for row in range(rows):
                    for i in range(count):
                        part[row, i] += b[first + i]
            if accumulate:
                for row in range(rows):
                    for i in range(count):
                        y[row, first + i] += part[row, i]
            else:
                for row in range(rows):
                    for i in range(count):
                        y[row, first + i] = part[row, i]
        begin = take(counter, share)


@njit(nogil=True, cache=True, fastmath=_SUMS)
def _rms_norm(x, weight, size, eps, out):  # type: ignore[no-untyped-def]
    v, w, o = carray(_as_f32(x), (size,)), carray(_as_f32(weight), (size,)), carray(_as_f32(out), (size,))
    total = np.float32(0)
    for i in range(size):
        total += v[i] * v[i]
    inverse = np.float32(1) / np.float32(math.sqrt(total / np.float32(size) + eps))
    for i in range(size):
        o[i] = v[i] * inverse * w[i]


@njit(nogil=True, cache=True)
def _quantize(x, size, work, row):  # type: ignore[no-untyped-def]
    """Row `row` of the next linear layer's input; x has room for whole groups."""
    groups = _padded(size, GROUP) // GROUP
    v = carray(_as_f32(x), (groups * GROUP,))
    for i in range(size, groups * GROUP):
        v[i] = np.float32(0)
    for g in range(groups):
        place = row * groups + g
        quantize_group(
            x + 4 * g * GROUP,
            work[Work.CODES] + place * GROUP,
            work[Work.SCALES] + 4 * place,
            work[Work.SUMS] + 4 * place,
        )


@njit(nogil=True, cache=True)
def _norm_rows(model, work, scratch, me, members, norm):  # type: ignore[no-untyped-def]
    hidden, eps = model[Model.HIDDEN], carray(_as_f32(model[Model.EPS]), (1,))[0]
    for row in range(me, work[Work.ROWS], members):
        _rms_norm(work[Work.X] + 4 * row * hidden, norm, hidden, eps, scratch)
        _quantize(scratch, hidden, work, row)


@njit(nogil=True, cache=True)
def _rotate(x, cos, sin, size, scale):  # type: ignore[no-untyped-def]
    half = size // 2
    for i in range(half):
        a, b = x[i], x[i + half]
        x[i] = (a * cos[i] + b * sin[i]) * scale
        x[i + half] = (b * cos[i + half] + a * sin[i + half]) * scale


@njit(nogil=True, cache=True)
def _keep(model, values, slot, cache):  # type: ignore[no-untyped-def]
    """Write float32 [n_kv_head * head_dim] to a slot."""
    size = values.shape[0]
    if model[Model.KV_BFLOAT16]:
        bits = carray(_as_u32(values.ctypes.data), (size,))
        target16 = carray(_as_u16(cache + 2 * slot * size), (size,))
        for i in range(size):  # rounded to nearest, ties to even
            v = bits[i]
            target16[i] = np.uint16((v + np.uint32(0x7FFF) + ((v >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
    else:
        target32 = carray(_as_f32(cache + 4 * slot * size), (size,))
        for i in range(size):
            target32[i] = values[i]


@njit(nogil=True, cache=True)
def _place_heads(model, layer, work, me, members):  # type: ignore[no-untyped-def]
    """Normalize and rotate queries and keys, scale the queries, write keys and values to the cache."""
    n_head, n_kv_head, size = model[Model.N_HEAD], model[Model.N_KV_HEAD], model[Model.HEAD_DIM]
    padded = _padded(size, VECTOR)
    width = (n_head + 2 * n_kv_head) * size
    stride = _padded(width, GROUP)
    eps = carray(_as_f32(model[Model.EPS]), (1,))[0]
    rows = work[Work.ROWS]
    qkv = carray(_as_f32(work[Work.QKV]), (rows, stride))
    q = carray(_as_f32(work[Work.Q]), (rows, n_head, padded))
    cos, sin = carray(_as_f32(work[Work.COS]), (rows, size)), carray(_as_f32(work[Work.SIN]), (rows, size))
    slots = carray(_as_i64(work[Work.SLOT]), (rows,))
    scale = np.float32(1 / math.sqrt(size))
    for row in range(me, rows, members):
        for head in range(n_head + n_kv_head):
            at = work[Work.QKV] + 4 * (row * stride + head * size)
            norm = layer[Layer.Q_NORM] if head < n_head else layer[Layer.K_NORM]
            if norm != 0:
                _rms_norm(at, norm, size, eps, at)
            _rotate(
                carray(_as_f32(at), (size,)), cos[row], sin[row], size, scale if head < n_head else np.float32(1)
            )
        for head in range(n_head):
            for i in range(size):
                q[row, head, i] = qkv[row, head * size + i]
        first, count = n_head * size, n_kv_head * size
        _keep(model, qkv[row, first : first + count], slots[row], layer[Layer.KEYS])
        _keep(model, qkv[row, first + count : first + 2 * count], slots[row], layer[Layer.VALUES])


@njit(nogil=True, cache=True)
def _fetch(model, cache, block, out):  # type: ignore[no-untyped-def]
    """A block of keys or values as float32 [block_size, n_kv_head, head_dim as whole vectors]."""
    size = model[Model.HEAD_DIM]
    padded = _padded(size, VECTOR)
    heads = model[Model.BLOCK_SIZE] * model[Model.N_KV_HEAD]
    if padded == size:
        heads, size, padded = 1, heads * size, heads * size
    if model[Model.KV_BFLOAT16]:
        source16 = carray(_as_u16(cache + 2 * block * heads * size), (heads, size))
        bits = carray(_as_u32(out), (heads, padded))
        for head in range(heads):
            for i in range(size):
                bits[head, i] = np.uint32(source16[head, i]) << np.uint32(16)
    else:
        source32 = carray(_as_f32(cache + 4 * block * heads * size), (heads, size))
        values = carray(_as_f32(out), (heads, padded))
        for head in range(heads):
            for i in range(size):
                values[head, i] = source32[head, i]


@njit(nogil=True, cache=True)
def _first_chunk(span, window, keys):  # type: ignore[no-untyped-def]
    """The first chunk that any row of a span sees."""
    return max(0, span[Span.CONTEXT] - span[Span.ROWS] + 1 - window) // keys if window else 0


@njit(nogil=True, cache=True)
def _attend_rows(model, layer, work, scratch, counter):  # type: ignore[no-untyped-def]
    """This thread's share of the chunks of keys of all spans, into parts and states."""
    keys = max(1, CHUNK // model[Model.BLOCK_SIZE]) * model[Model.BLOCK_SIZE]
    spans = carray(_as_i64(work[Work.SPAN]), (work[Work.SPANS], SPAN_PLACES))
    wanted = take(counter, 1)
    unit, part, row = 0, 0, 0
    for s in range(work[Work.SPANS]):
        span = spans[s]
        first = _first_chunk(span, layer[Layer.WINDOW], keys)
        chunks = -(-span[Span.CONTEXT] // keys) - first
        while wanted < unit + chunks:
            chunk = wanted - unit
            _attend_chunk(model, layer, work, scratch, span, row, (first + chunk) * keys, part + chunk * span[Span.ROWS])
            wanted = take(counter, 1)
        unit += chunks
        part += chunks * span[Span.ROWS]
        row += span[Span.ROWS]


@njit(nogil=True, cache=True)
def _attend_chunk(model, layer, work, scratch, span, row, begin, part):  # type: ignore[no-untyped-def]
    block_size, n_head, n_kv_head = model[Model.BLOCK_SIZE], model[Model.N_HEAD], model[Model.N_KV_HEAD]
    padded = _padded(model[Model.HEAD_DIM], VECTOR)
    group = n_head // n_kv_head
    rows, context, window = span[Span.ROWS], span[Span.CONTEXT], layer[Layer.WINDOW]
    table = carray(_as_i64(span[Span.TABLE]), (-(-context // block_size),))
    parts = carray(_as_f32(work[Work.PARTS] + 4 * part * n_head * padded), (rows * n_head * padded,))
    states = carray(_as_f32(work[Work.STATES] + 8 * part * n_head), (rows * n_head, 2))
    parts[:] = np.float32(0)
    for i in range(rows * n_head):
        states[i, 0], states[i, 1] = np.float32(-np.inf), np.float32(0)
    keys = scratch
    values = keys + 4 * _padded(block_size, VECTOR) * n_kv_head * padded
    stride = 4 * n_kv_head * padded
    oldest = max(0, context - rows + 1 - window) if window else 0
    end = min(begin + max(1, CHUNK // block_size) * block_size, context)
    for start in range(max(begin, oldest // block_size * block_size), end, block_size):
        block = table[start // block_size]
        _fetch(model, layer[Layer.KEYS], block, keys)
        _fetch(model, layer[Layer.VALUES], block, values)
        for key in range(start, min(start + block_size, end), VECTOR):
            skipped = (key - start) * stride
            for r in range(rows):
                position = context - rows + r
                first = max(0, position + 1 - window - key) if window else 0
                last = min(min(VECTOR, position + 1 - key), start + block_size - key)
                if first >= last:
                    continue
                for head in range(n_head):
                    shared = skipped + 4 * (head // group) * padded
                    place = r * n_head + head
                    attend_16(
                        work[Work.Q] + 4 * ((row + r) * n_head + head) * padded,
                        keys + shared,
                        values + shared,
                        stride,
                        padded,
                        first,
                        last,
                        work[Work.PARTS] + 4 * (part * n_head + place) * padded,
                        work[Work.STATES] + 8 * (part * n_head + place),
                    )


@njit(nogil=True, cache=True, fastmath=_SUMS)
def _merge_rows(model, layer, work, scratch, me, members):  # type: ignore[no-untyped-def]
    """Join the chunks of each row, by the log-sum-exp of their scores, into the output layer's input."""
    n_head, size = model[Model.N_HEAD], model[Model.HEAD_DIM]
    padded = _padded(size, VECTOR)
    keys = max(1, CHUNK // model[Model.BLOCK_SIZE]) * model[Model.BLOCK_SIZE]
    spans = carray(_as_i64(work[Work.SPAN]), (work[Work.SPANS], SPAN_PLACES))
    out = carray(_as_f32(scratch), (n_head, size))
    row, part = 0, 0
    for s in range(work[Work.SPANS]):
        span = spans[s]
        rows = span[Span.ROWS]
        chunks = -(-span[Span.CONTEXT] // keys) - _first_chunk(span, layer[Layer.WINDOW], keys)
        parts = carray(_as_f32(work[Work.PARTS] + 4 * part * n_head * padded), (chunks, rows, n_head, padded))
        states = carray(_as_f32(work[Work.STATES] + 8 * part * n_head), (chunks, rows, n_head, 2))
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
            _quantize(scratch, n_head * size, work, row + r)
        row += rows
        part += chunks * rows


@njit(nogil=True, cache=True)
def _gate_rows(model, layer, work, scratch, counter, members, codes, scales, sums):  # type: ignore[no-untyped-def]
    """This thread's share of the gated activations, 32 at a time, quantized to codes [R, inner] for the next layer."""
    hidden, inner, rows = model[Model.HIDDEN], model[Model.INNER], work[Work.ROWS]
    groups, tiles = _padded(hidden, GROUP) // GROUP, inner // TILE
    out_groups = _padded(inner, GROUP) // GROUP
    bits = layer[Layer.GATE_UP_BITS]
    size = _tile_bytes(groups, bits)
    share = _share(out_groups, members)
    plane = 4 * rows * TILE
    b = carray(_as_f32(layer[Layer.GATE_UP_BIAS]), (2, inner))
    y = carray(_as_f32(scratch), (4, rows, TILE))
    begin = take(counter, share)
    while begin < out_groups:
        for g in range(begin, min(begin + share, out_groups)):
            halves = min(2, tiles - 2 * g)
            for half in range(halves):
                tile = 2 * g + half
                for up in range(2):
                    weight = layer[Layer.GATE_UP] + (up * tiles + tile) * size
                    target = 2 * half + up
                    _dot(
                        weight, bits, groups, work[Work.CODES], work[Work.SCALES], work[Work.SUMS], rows,
                        scratch + target * plane,
                    )
                    if layer[Layer.GATE_UP_BIAS] != 0:
                        for row in range(rows):
                            for i in range(TILE):
                                y[target, row, i] += b[up, tile * TILE + i]
            for row in range(rows):
                act = scratch + 4 * plane
                if halves == 1:
                    carray(_as_f32(act), (GROUP,))[:] = np.float32(0)
                for half in range(halves):
                    gate = scratch + 2 * half * plane + 4 * row * TILE
                    gate_16(gate, gate + plane, act + 4 * half * TILE, model[Model.GELU])
                place = row * out_groups + g
                quantize_group(act, codes + place * GROUP, scales + 4 * place, sums + 4 * place)
        begin = take(counter, share)


@njit(nogil=True, cache=True)
def _run_step(control: int, job: int, me: int) -> None:
    """One thread's part of the step that the `Work` at address `job` describes."""
    members = atomic_load(control + MEMBERS * LINE)
    work = carray(_as_i64(job), (WORK_PLACES,))
    model = carray(_as_i64(work[Work.MODEL]), (MODEL_PLACES,))
    layers = carray(_as_i64(model[Model.LAYERS]), (model[Model.N_LAYER], LAYER_PLACES))
    rows, hidden, inner = work[Work.ROWS], model[Model.HIDDEN], model[Model.INNER]
    attended = model[Model.N_HEAD] * model[Model.HEAD_DIM]
    width = attended + 2 * model[Model.N_KV_HEAD] * model[Model.HEAD_DIM]
    stride = _padded(width, GROUP)
    scratch = work[Work.SCRATCH] + me * work[Work.SCRATCH_BYTES]
    counter = work[Work.COUNTERS]
    # Two places for quantized inputs: the gated activations are written while their own input is still read.
    codes, scales, sums = work[Work.CODES], work[Work.SCALES], work[Work.SUMS]
    widest = _padded(max(hidden, max(attended, inner)), GROUP)
    codes2, scales2, sums2 = (
        codes + rows * widest,
        scales + 4 * rows * widest // GROUP,
        sums + 4 * rows * widest // GROUP,
    )
    mine = work.copy()
    for index in range(model[Model.N_LAYER]):
        layer = layers[index]
        mine[Work.CODES], mine[Work.SCALES], mine[Work.SUMS] = codes, scales, sums
        _norm_rows(model, mine, scratch, me, members, layer[Layer.ATTENTION_NORM])
        barrier(control)
        _linear(
            mine, scratch, counter, members, layer[Layer.QKV], layer[Layer.QKV_BITS], layer[Layer.QKV_BIAS],
            hidden, width, rows, work[Work.QKV], stride, False,
        )
        barrier(control)
        _place_heads(model, layer, mine, me, members)
        barrier(control)
        _attend_rows(model, layer, mine, scratch, counter + 8)
        barrier(control)
        _merge_rows(model, layer, mine, scratch, me, members)
        barrier(control)
        _linear(
            mine, scratch, counter + 16, members, layer[Layer.OUT], layer[Layer.OUT_BITS], layer[Layer.OUT_BIAS],
            attended, hidden, rows, work[Work.X], hidden, True,
        )
        barrier(control)
        _norm_rows(model, mine, scratch, me, members, layer[Layer.MLP_NORM])
        barrier(control)
        _gate_rows(model, layer, mine, scratch, counter + 24, members, codes2, scales2, sums2)
        barrier(control)
        mine[Work.CODES], mine[Work.SCALES], mine[Work.SUMS] = codes2, scales2, sums2
        _linear(
            mine, scratch, counter + 32, members, layer[Layer.DOWN], layer[Layer.DOWN_BITS], layer[Layer.DOWN_BIAS],
            inner, hidden, rows, work[Work.X], hidden, True,
        )
        barrier(control)
        counter += 40
    _head(model, mine, scratch, counter, me, members, control)


@njit(nogil=True, cache=True)
def _head(model, work, scratch, counter, me, members, control):  # type: ignore[no-untyped-def]
    hidden, eps = model[Model.HIDDEN], carray(_as_f32(model[Model.EPS]), (1,))[0]
    wanted = carray(_as_i64(work[Work.LOGIT_ROW]), (work[Work.LOGITS],))
    for i in range(me, work[Work.LOGITS], members):
        _rms_norm(work[Work.X] + 4 * wanted[i] * hidden, model[Model.NORM], hidden, eps, scratch)
        _quantize(scratch, hidden, work, i)
    barrier(control)
    _linear(
        work, scratch, counter, members, model[Model.HEAD], model[Model.HEAD_BITS], 0,
        hidden, model[Model.VOCAB], work[Work.LOGITS], work[Work.OUT], model[Model.VOCAB], False,
    )
    barrier(control)


@njit(nogil=True, cache=True)
def serve_steps(control: int, seen: int, me: int) -> int:
    """See `kernels.cpu.team.Team`."""
    while True:
        number = await_call(control, seen, me)
        if number != seen:
            _run_step(control, atomic_load(control + JOB * LINE), me)
        if number == seen or me == 0:
            return number
        seen = number

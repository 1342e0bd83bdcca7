"""A whole step of the decoder in one native call, over packed weights and the paged cache in place.

Activations are float32 between the packed layers and whole numbers in groups of 32 inside them. Each weight is read
once for all rows of a step. Attention is shared out in two ways: few rows of a sequence, a decode above all, by chunks
of keys, so that one long sequence uses all threads; many rows, a chunk of prefill, by tiles of rows.
"""

from __future__ import annotations

import math

import numpy as np
from numba import carray

from kernels.cpu.attention import attention_scratch, keep_token, padded
from kernels.cpu.attention_ops import multiplies_pairs, pair_16
from kernels.cpu.compiler import compiled
from kernels.cpu.groups import rotate
from kernels.cpu.linear import dot, linear, packed_bytes, quantize_row, rms_norm, share_of
from kernels.cpu.linear_ops import X_BYTES, gate_16, quantize_group
from kernels.cpu.packing import GROUP, TILE
from kernels.cpu.places import LAYER_PLACES, MODEL_PLACES, WORK_PLACES, Layer, Model, Work
from kernels.cpu.pointers import as_f32, as_i64
from kernels.cpu.spans import FEW_ROWS, attend, merge
from kernels.cpu.team import JOB, MEMBERS, atomic_load, await_call, barrier, take
from kernels.cpu.weights import LINE


def scratch_bytes(hidden: int, attended: int, n_head: int, rows: int) -> int:
    """What each thread needs for the largest of its tasks: a row, tiles of outputs of all rows, a tile of queries."""
    row = max(hidden, attended) + GROUP
    queries = attention_scratch.py_func(attended // n_head) + FEW_ROWS * (2 * attended + 2 * n_head) + row
    return 4 * padded.py_func(max(row, 4 * rows * TILE + GROUP, queries), TILE)


@compiled
def _norm_rows(model, work, scratch, me, members, norm):
    hidden, eps = model[Model.HIDDEN], carray(as_f32(model[Model.EPS]), (1,))[0]
    for row in range(me, work[Work.ROWS], members):
        rms_norm(work[Work.X] + 4 * row * hidden, norm, hidden, eps, scratch)
        quantize_row(scratch, hidden, work, row)


@compiled
def _turn(x, cos, sin, size, scale):
    """Rotary position embedding."""
    half = size // 2
    for i in range(half):
        a, b = x[i], x[i + half]
        x[i] = (a * cos[i] + b * sin[i]) * scale
        x[i + half] = (b * cos[i + half] + a * sin[i + half]) * scale


@compiled
def _place_heads(model, layer, work, me, members):
    """Normalize and rotate queries and keys, scale the queries, write keys and values to the cache."""
    n_head, n_kv_head, size = model[Model.N_HEAD], model[Model.N_KV_HEAD], model[Model.HEAD_DIM]
    stride = padded((n_head + 2 * n_kv_head) * size, GROUP)
    eps = carray(as_f32(model[Model.EPS]), (1,))[0]
    rows = work[Work.ROWS]
    cos, sin = carray(as_f32(work[Work.COS]), (rows, size)), carray(as_f32(work[Work.SIN]), (rows, size))
    slots = carray(as_i64(work[Work.SLOT]), (rows,))
    scale = np.float32(1 / math.sqrt(size))
    pairs = model[Model.KV_BFLOAT16] != 0 and multiplies_pairs()
    for row in range(me, rows, members):
        heads = work[Work.QKV] + 4 * row * stride
        for head in range(n_head + n_kv_head):
            at = heads + 4 * head * size
            norm = layer[Layer.Q_NORM] if head < n_head else layer[Layer.K_NORM]
            if norm != 0:
                rms_norm(at, norm, size, eps, at)
            _turn(carray(as_f32(at), (size,)), cos[row], sin[row], size, scale if head < n_head else np.float32(1))
        for head in range(n_head + 2 * n_kv_head):
            if model[Model.KEY_ROTATED] if head < n_head + n_kv_head else model[Model.VALUE_ROTATED]:
                rotate(heads + 4 * head * size, size)
        if pairs:
            for i in range(0, n_head * size, TILE):
                pair_16(heads + 4 * i, work[Work.Q] + 2 * (row * n_head * size + i))
        else:
            q = carray(as_f32(work[Work.Q]), (rows, n_head * size))
            q[row] = carray(as_f32(heads), (n_head * size,))
        mate = row + 1 >= rows or slots[row + 1] != slots[row] + 1
        keys = heads + 4 * n_head * size
        keep_token(model, layer, slots[row], keys, keys + 4 * n_kv_head * size, mate)


@compiled
def _gate_rows(model, layer, work, scratch, counter, members, codes, scales, sums):
    """This thread's share of the gated activations, 32 at a time, quantized to codes [R, inner] for the next layer."""
    hidden, inner, rows = model[Model.HIDDEN], model[Model.INNER], work[Work.ROWS]
    groups, tiles = padded(hidden, GROUP) // GROUP, inner // TILE
    out_groups = padded(inner, GROUP) // GROUP
    bits = layer[Layer.GATE_UP_BITS]
    size = packed_bytes(groups, bits)
    share = share_of(out_groups, members)
    plane = 4 * rows * TILE
    b = carray(as_f32(layer[Layer.GATE_UP_BIAS]), (2, inner))
    y = carray(as_f32(scratch), (4, rows, TILE))
    begin = take(counter, share)
    while begin < out_groups:
        for g in range(begin, min(begin + share, out_groups)):
            halves = min(2, tiles - 2 * g)
            for half in range(halves):
                tile = 2 * g + half
                for up in range(2):
                    weight = layer[Layer.GATE_UP] + (up * tiles + tile) * size
                    target = 2 * half + up
                    dot(
                        weight,
                        bits,
                        groups,
                        work[Work.CODES],
                        work[Work.SCALES],
                        work[Work.SUMS],
                        rows,
                        scratch + target * plane,
                    )
                    if layer[Layer.GATE_UP_BIAS] != 0:
                        for row in range(rows):
                            for i in range(TILE):
                                y[target, row, i] += b[up, tile * TILE + i]
            for row in range(rows):
                act = scratch + 4 * plane
                if halves == 1:
                    carray(as_f32(act), (GROUP,))[:] = np.float32(0)
                for half in range(halves):
                    gate = scratch + 2 * half * plane + 4 * row * TILE
                    gate_16(gate, gate + plane, act + 4 * half * TILE, model[Model.GELU])
                place = row * out_groups + g
                quantize_group(act, codes + place * X_BYTES, scales + 4 * place, sums + 8 * place)
        begin = take(counter, share)


@compiled
def _run_step(control: int, job: int, me: int) -> None:
    """One thread's part of the step that the `Work` at address `job` describes."""
    members = atomic_load(control + MEMBERS * LINE)
    work = carray(as_i64(job), (WORK_PLACES,))
    model = carray(as_i64(work[Work.MODEL]), (MODEL_PLACES,))
    layers = carray(as_i64(model[Model.LAYERS]), (model[Model.N_LAYER], LAYER_PLACES))
    rows, hidden, inner = work[Work.ROWS], model[Model.HIDDEN], model[Model.INNER]
    attended = model[Model.N_HEAD] * model[Model.HEAD_DIM]
    width = attended + 2 * model[Model.N_KV_HEAD] * model[Model.HEAD_DIM]
    stride = padded(width, GROUP)
    scratch = work[Work.SCRATCH] + me * work[Work.SCRATCH_BYTES]
    counter = work[Work.COUNTERS]
    # Two places for quantized inputs: the gated activations are written while their own input is still read.
    codes, scales, sums = work[Work.CODES], work[Work.SCALES], work[Work.SUMS]
    widest = padded(max(hidden, max(attended, inner)), GROUP)
    codes2, scales2, sums2 = (
        codes + rows * widest // GROUP * X_BYTES,
        scales + 4 * rows * widest // GROUP,
        sums + 8 * rows * widest // GROUP,
    )
    mine = work.copy()
    for index in range(model[Model.N_LAYER]):
        layer = layers[index]
        mine[Work.CODES], mine[Work.SCALES], mine[Work.SUMS] = codes, scales, sums
        _norm_rows(model, mine, scratch, me, members, layer[Layer.ATTENTION_NORM])
        barrier(control)
        linear(
            mine,
            scratch,
            counter,
            members,
            layer[Layer.QKV],
            layer[Layer.QKV_BITS],
            layer[Layer.QKV_BIAS],
            hidden,
            width,
            rows,
            work[Work.QKV],
            stride,
            False,
        )
        barrier(control)
        _place_heads(model, layer, mine, me, members)
        barrier(control)
        attend(model, layer, mine, scratch, counter + 8)
        barrier(control)
        merge(model, layer, mine, scratch, me, members)
        barrier(control)
        linear(
            mine,
            scratch,
            counter + 16,
            members,
            layer[Layer.OUT],
            layer[Layer.OUT_BITS],
            layer[Layer.OUT_BIAS],
            attended,
            hidden,
            rows,
            work[Work.X],
            hidden,
            True,
        )
        barrier(control)
        _norm_rows(model, mine, scratch, me, members, layer[Layer.MLP_NORM])
        barrier(control)
        _gate_rows(model, layer, mine, scratch, counter + 24, members, codes2, scales2, sums2)
        barrier(control)
        mine[Work.CODES], mine[Work.SCALES], mine[Work.SUMS] = codes2, scales2, sums2
        linear(
            mine,
            scratch,
            counter + 32,
            members,
            layer[Layer.DOWN],
            layer[Layer.DOWN_BITS],
            layer[Layer.DOWN_BIAS],
            inner,
            hidden,
            rows,
            work[Work.X],
            hidden,
            True,
        )
        barrier(control)
        counter += 40
    _head(model, mine, scratch, counter, me, members, control)


@compiled
def _head(model, work, scratch, counter, me, members, control):
    hidden, eps = model[Model.HIDDEN], carray(as_f32(model[Model.EPS]), (1,))[0]
    wanted = carray(as_i64(work[Work.LOGIT_ROW]), (work[Work.LOGITS],))
    for i in range(me, work[Work.LOGITS], members):
        rms_norm(work[Work.X] + 4 * wanted[i] * hidden, model[Model.NORM], hidden, eps, scratch)
        quantize_row(scratch, hidden, work, i)
    barrier(control)
    linear(
        work,
        scratch,
        counter,
        members,
        model[Model.HEAD],
        model[Model.HEAD_BITS],
        0,
        hidden,
        model[Model.VOCAB],
        work[Work.LOGITS],
        work[Work.OUT],
        model[Model.VOCAB],
        False,
    )
    barrier(control)


@compiled
def serve_steps(control: int, seen: int, me: int) -> int:
    """See `kernels.cpu.team.Team`."""
    while True:
        number = await_call(control, seen, me)
        if number != seen:
            _run_step(control, atomic_load(control + JOB * LINE), me)
        if number == seen or me == 0:
            return number
        seen = number

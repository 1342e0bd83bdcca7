"""Attention over the paged cache in place, compiled.

A layer's keys are [num_blocks, n_kv_head, head_dim / P, block_size, P] and its values [num_blocks, n_kv_head,
block_size / P, head_dim, P], P = 1 in float32 and 2 in bfloat16: tiles as `kernels.cpu.attention_ops` reads them. Block
sizes and head sizes are multiples of 16.

Where they are stored as integers in groups, they are [num_blocks, n_kv_head, block_size / 16] tiles of
`kernels.cpu.group_ops`, each expanded into such words in the scratch of the thread that reads it.

A value's slot may share its word with one that no token was written to yet: it is set to zero, so that a weight of
zero makes nothing of it.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from kernels.cpu.attention_ops import AT_ONCE, make_mix, make_score, make_soften, multiplies_pairs, read_ahead
from kernels.cpu.compiler import compiled
from kernels.cpu.groups import expand_keys, expand_values, keep_keys, keep_values, tile_bytes
from kernels.cpu.ir import LANES
from kernels.cpu.places import Layer, Model, Span
from kernels.cpu.pointers import as_f32, as_i64, as_u16, as_u32
from kernels.cpu.weights import LINE

CHUNK = 256
"""Keys that one thread attends to at a time in decodes."""

_score_f1, _score_f2, _score_f3, _score_f4 = (make_score(rows, False) for rows in (1, 2, 3, 4))
_score_b1, _score_b2, _score_b3, _score_b4 = (make_score(rows, True) for rows in (1, 2, 3, 4))
_mix_f1, _mix_f2, _mix_f3, _mix_f4 = (make_mix(rows, False) for rows in (1, 2, 3, 4))
_mix_b1, _mix_b2, _mix_b3, _mix_b4 = (make_mix(rows, True) for rows in (1, 2, 3, 4))
_soften_f, _soften_b = make_soften(False), make_soften(True)


@compiled
def padded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@compiled
def _to_bfloat16(bits):
    """Of a float32's bits, rounded to nearest, ties to even."""
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@compiled
def _tile(model, plane, bits, group, block, head, place):
    """The address of the tile of integers that a place of a block is in."""
    tiles = model[Model.BLOCK_SIZE] // LANES
    index = (block * model[Model.N_KV_HEAD] + head) * tiles + place // LANES
    return plane + index * tile_bytes(model[Model.HEAD_DIM], bits, group)


@compiled
def keep_token(model, layer, slot, k, v, mate):
    """Write a token's keys and values, float32 [n_kv_head, head_dim] at addresses k and v, to its slot. `mate`: the
    next slot is not written by the same step."""
    keys, values = layer[Layer.KEYS], layer[Layer.VALUES]
    block_size, n_kv_head, size = model[Model.BLOCK_SIZE], model[Model.N_KV_HEAD], model[Model.HEAD_DIM]
    block, place = slot // block_size, slot % block_size
    if model[Model.KEY_BITS]:
        for head in range(n_kv_head):
            tile = _tile(model, keys, model[Model.KEY_BITS], model[Model.KEY_GROUP], block, head, place)
            keep_keys(tile, place % LANES, k + 4 * head * size, size, model[Model.KEY_BITS], model[Model.KEY_GROUP])
            bits, group = model[Model.VALUE_BITS], model[Model.VALUE_GROUP]
            tile = _tile(model, values, bits, group, block, head, place)
            keep_values(tile, place % LANES, v + 4 * head * size, size, bits, group, mate)
    elif model[Model.KV_BFLOAT16]:
        k_bits, v_bits = carray(as_u32(k), (n_kv_head, size // 2, 2)), carray(as_u32(v), (n_kv_head, size))
        offset = 2 * block * n_kv_head * size * block_size
        k_words = carray(as_u32(keys + offset), (n_kv_head, size // 2, block_size))
        v16 = carray(as_u16(values + offset), (n_kv_head, block_size // 2, size, 2))
        half = place % 2
        for head in range(n_kv_head):
            for i in range(size // 2):
                first, second = _to_bfloat16(k_bits[head, i, 0]), _to_bfloat16(k_bits[head, i, 1])
                k_words[head, i, place] = np.uint32(first) | np.uint32(second) << np.uint32(16)
            for i in range(size):
                v16[head, place // 2, i, half] = _to_bfloat16(v_bits[head, i])
            if mate and half == 0:
                v16[head, place // 2, :, 1] = np.uint16(0)
    else:
        k32, v32 = carray(as_f32(k), (n_kv_head, size)), carray(as_f32(v), (n_kv_head, size))
        offset = 4 * block * n_kv_head * size * block_size
        kept_k = carray(as_f32(keys + offset), (n_kv_head, size, block_size))
        kept_v = carray(as_f32(values + offset), (n_kv_head, block_size, size))
        for head in range(n_kv_head):
            for i in range(size):
                kept_k[head, i, place] = k32[head, i]
                kept_v[head, place, i] = v32[head, i]


@compiled
def _score(rows, bfloat16, q, q_stride, keys, words, key_stride, out):
    if bfloat16:
        if rows == 1:
            _score_b1(q, q_stride, keys, words, key_stride, out)
        elif rows == 2:
            _score_b2(q, q_stride, keys, words, key_stride, out)
        elif rows == 3:
            _score_b3(q, q_stride, keys, words, key_stride, out)
        else:
            _score_b4(q, q_stride, keys, words, key_stride, out)
    elif rows == 1:
        _score_f1(q, q_stride, keys, words, key_stride, out)
    elif rows == 2:
        _score_f2(q, q_stride, keys, words, key_stride, out)
    elif rows == 3:
        _score_f3(q, q_stride, keys, words, key_stride, out)
    else:
        _score_f4(q, q_stride, keys, words, key_stride, out)


@compiled
def _mix(rows, bfloat16, weights, values, words, stride, size, out, out_stride):
    if bfloat16:
        if rows == 1:
            _mix_b1(weights, values, words, stride, size, out, out_stride)
        elif rows == 2:
            _mix_b2(weights, values, words, stride, size, out, out_stride)
        elif rows == 3:
            _mix_b3(weights, values, words, stride, size, out, out_stride)
        else:
            _mix_b4(weights, values, words, stride, size, out, out_stride)
    elif rows == 1:
        _mix_f1(weights, values, words, stride, size, out, out_stride)
    elif rows == 2:
        _mix_f2(weights, values, words, stride, size, out, out_stride)
    elif rows == 3:
        _mix_f3(weights, values, words, stride, size, out, out_stride)
    else:
        _mix_f4(weights, values, words, stride, size, out, out_stride)


@compiled
def attention_scratch(size):
    """float32: scores of 4 queries, and keys and values that were expanded."""
    return AT_ONCE * (4 + 2 * size)


@compiled
def attend_queries(model, layer, span, begin, end, q, q_bytes, count, position, out, states, scratch):
    """Fold the keys [begin, end) of a span into the outputs of `count` queries of each key/value head.

    q [n_kv_head, count, head_dim]: pairs of bfloat16 where `multiplies_pairs` and the cache is in bfloat16, else
    float32, q_bytes a query; query i of a head stands at position + i // (n_head / n_kv_head). out float32 [n_kv_head,
    count, head_dim], states float32 [n_kv_head, count, 2], see `kernels.cpu.attention_ops.make_soften`; scratch:
    attention_scratch float32. begin is a multiple of 16.
    """
    size = model[Model.HEAD_DIM]
    for key in range(begin, end, AT_ONCE):
        # Heads inside: what a block holds is then read in one go.
        for head in range(model[Model.N_KV_HEAD]):
            first = head * count
            _attend_head(
                model,
                layer,
                span,
                head,
                key,
                end,
                q + first * q_bytes,
                q_bytes,
                count,
                position,
                out + 4 * first * size,
                states + 8 * first,
                scratch,
            )


@compiled
def _attend_head(model, layer, span, head, key, end, q, q_bytes, count, position, out, states, scratch):
    """At most AT_ONCE keys from `key` on, of one key/value head."""
    keys, values, window = layer[Layer.KEYS], layer[Layer.VALUES], layer[Layer.WINDOW]
    block_size, n_kv_head, size = model[Model.BLOCK_SIZE], model[Model.N_KV_HEAD], model[Model.HEAD_DIM]
    bfloat16, group = model[Model.KV_BFLOAT16], model[Model.N_HEAD] // n_kv_head
    item = 2 if bfloat16 else 4
    per_word = 4 // item
    words = size // per_word
    head_bytes = block_size * size * item
    blocks = carray(as_i64(span[Span.TABLE]), (-(-end // block_size),))
    tile_weights = LANES * (2 if bfloat16 != 0 and multiplies_pairs() else 4)
    tiles = -(-min(AT_ONCE, end - key) // LANES)
    grouped = model[Model.KEY_BITS] != 0
    expanded = scratch + 16 * AT_ONCE
    expanded_tile = LANES * size * item
    if grouped:
        _expand(model, layer, blocks, head, key, end, tiles, expanded, expanded_tile)
    for i in range(0, count, 4):
        rows = min(4, count - i)
        newest = position + (i + rows - 1) // group
        if newest < key or (window and position + i // group + 1 - window >= key + AT_ONCE):
            continue
        for tile in range(tiles):
            if grouped:
                source, stride = expanded + tile * expanded_tile, LINE
            else:
                at = key + LANES * tile
                block, place = blocks[at // block_size], at % block_size
                source, stride = keys + (block * n_kv_head + head) * head_bytes + 4 * place, 4 * block_size
                if i == 0 and at + AT_ONCE < end:
                    coming, place = blocks[(at + AT_ONCE) // block_size], (at + AT_ONCE) % block_size
                    read_ahead(keys + (coming * n_kv_head + head) * head_bytes + 4 * place, words, stride)
            _score(rows, bfloat16, q + i * q_bytes, q_bytes, source, words, stride, scratch + 4 * LANES * tile)
        for row in range(rows):
            seen = position + (i + row) // group
            first = max(0, seen + 1 - window - key) if window else 0
            last = min(AT_ONCE, seen + 1 - key)
            scores = scratch + 4 * AT_ONCE * row
            if first >= last:
                carray(as_f32(scores), (AT_ONCE,))[:] = np.float32(0)
            elif bfloat16:
                _soften_b(scores, first, last, size, out + 4 * (i + row) * size, states + 8 * (i + row))
            else:
                _soften_f(scores, first, last, size, out + 4 * (i + row) * size, states + 8 * (i + row))
        for tile in range(tiles):
            at = key + LANES * tile
            filled = -(-min(LANES, newest + 1 - at) // per_word)
            if filled <= 0:
                break
            if grouped:
                source = expanded + (AT_ONCE // LANES + tile) * expanded_tile
            else:
                block, place = blocks[at // block_size], at % block_size
                source = values + (block * n_kv_head + head) * head_bytes + 4 * (place // per_word) * size
                if i == 0 and at + AT_ONCE < end:
                    coming, place = blocks[(at + AT_ONCE) // block_size], (at + AT_ONCE) % block_size
                    ahead = values + (coming * n_kv_head + head) * head_bytes + 4 * (place // per_word) * size
                    read_ahead(ahead, LANES // per_word * size // LANES, LINE)
            weights = scratch + tile_weights * tile
            _mix(rows, bfloat16, weights, source, filled, 4 * size, size, out + 4 * i * size, 4 * size)


@compiled
def _expand(model, layer, blocks, head, key, end, tiles, out, expanded_tile):
    """Tiles of keys, then of values from AT_ONCE keys on, of one key/value head."""
    block_size, size = model[Model.BLOCK_SIZE], model[Model.HEAD_DIM]
    k_bits, k_group = model[Model.KEY_BITS], model[Model.KEY_GROUP]
    v_bits, v_group = model[Model.VALUE_BITS], model[Model.VALUE_GROUP]
    out_values = out + AT_ONCE // LANES * expanded_tile
    for tile in range(tiles):
        at = key + LANES * tile
        block, place = blocks[at // block_size], at % block_size
        if at + AT_ONCE < end:
            coming, there = blocks[(at + AT_ONCE) // block_size], (at + AT_ONCE) % block_size
            ahead = _tile(model, layer[Layer.KEYS], k_bits, k_group, coming, head, there)
            read_ahead(ahead, tile_bytes(size, k_bits, k_group) // LINE, LINE)
            ahead = _tile(model, layer[Layer.VALUES], v_bits, v_group, coming, head, there)
            read_ahead(ahead, tile_bytes(size, v_bits, v_group) // LINE, LINE)
        source = _tile(model, layer[Layer.KEYS], k_bits, k_group, block, head, place)
        expand_keys(source, size, k_bits, k_group, out + tile * expanded_tile)
        source = _tile(model, layer[Layer.VALUES], v_bits, v_group, block, head, place)
        expand_values(source, size, v_bits, v_group, out_values + tile * expanded_tile)

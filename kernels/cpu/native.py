"""A decoder on the native kernels: packed weights and a paged cache, one native call a step on all threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from kernels.contract import LayerCache, Span
from kernels.cpu.attention import CHUNK
from kernels.cpu.linear_ops import X_BYTES
from kernels.cpu.packing import GROUP
from kernels.cpu.places import LAYER_PLACES, MODEL_PLACES, WORK_PLACES, Layer, Model, Work
from kernels.cpu.spans import FEW_ROWS
from kernels.cpu.step import scratch_bytes, serve_steps
from kernels.cpu.team import Team
from kernels.cpu.teams import Teams
from kernels.cpu.tier import has_pairs
from kernels.cpu.weights import DecoderShape, NativeLayer, NativeWeights
from kernels.kv_format import Groups

_NO_GROUPS = Groups(0, 0)


@cache
def team_of(size: int) -> Team:
    return Team(size, serve_steps)


_one_call = Lock()
"""All decoders of a process share the teams."""


class NativeDecoder:
    """Runs steps over a cache in bfloat16, float32 or groups; inside a block, keys and values lie as
    `kernels.cpu.attention` says. `windows`: per layer, how many keys a query sees, itself included; None for all."""

    def __init__(
        self,
        shape: DecoderShape,
        weights: NativeWeights,
        windows: Sequence[int | None],
        cache: Sequence[LayerCache],
        threads: int,
    ) -> None:
        self._shape, self._weights, self._cache, self._threads = shape, weights, cache, threads
        self._teams = Teams(threads, team_of)
        self._eps = torch.tensor([shape.norm_eps], dtype=torch.float32)
        self._layer_table = np.array(
            [self._layer(*parts) for parts in zip(self._weights.layers, windows, cache, strict=True)], np.int64
        )
        self._model = self._describe_model()
        self._buffers: dict[Work, Tensor] = {}
        self._room = (0, 0, 0)
        """Rows, rows of logits and parts of attention that the buffers hold."""
        self._scratch_bytes = 0

    def _layer(self, layer: NativeLayer, window: int | None, cache: LayerCache) -> list[int]:
        places = [0] * LAYER_PLACES
        places[Layer.ATTENTION_NORM] = layer.attention_norm.data_ptr()
        places[Layer.MLP_NORM] = layer.mlp_norm.data_ptr()
        if layer.q_norm is not None and layer.k_norm is not None:
            places[Layer.Q_NORM], places[Layer.K_NORM] = layer.q_norm.data_ptr(), layer.k_norm.data_ptr()
        for first, linear in (
            (Layer.QKV, layer.qkv),
            (Layer.OUT, layer.out),
            (Layer.GATE_UP, layer.gate_up),
            (Layer.DOWN, layer.down),
        ):
            bias = 0 if linear.bias is None else linear.bias.data_ptr()
            places[first : first + 3] = linear.tiles.data_ptr(), linear.bits, bias
        places[Layer.WINDOW] = window or 0
        places[Layer.KEYS], places[Layer.VALUES] = (plane.blocks.data_ptr() for plane in cache)
        return places

    def _describe_model(self) -> np.ndarray:
        shape, cache = self._shape, self._cache[0]
        places = np.zeros(MODEL_PLACES, np.int64)
        keys, values = (plane.storage if isinstance(plane.storage, Groups) else _NO_GROUPS for plane in cache)
        bfloat16 = has_pairs() if keys.bits else cache.keys.storage == torch.bfloat16
        for place, value in {
            Model.N_LAYER: len(self._weights.layers),
            Model.HIDDEN: shape.hidden,
            Model.N_HEAD: shape.n_head,
            Model.N_KV_HEAD: shape.n_kv_head,
            Model.HEAD_DIM: shape.head_dim,
            Model.INNER: shape.inner,
            Model.VOCAB: shape.vocab,
            Model.GELU: shape.activation == "gelu_tanh",
            Model.BLOCK_SIZE: cache.keys.block_size,
            Model.KV_BFLOAT16: bfloat16,
            Model.KEY_BITS: keys.bits,
            Model.KEY_GROUP: keys.size,
            Model.KEY_ROTATED: keys.rotated,
            Model.VALUE_BITS: values.bits,
            Model.VALUE_GROUP: values.size,
            Model.VALUE_ROTATED: values.rotated,
            Model.EPS: self._eps.data_ptr(),
            Model.LAYERS: self._layer_table.ctypes.data,
            Model.NORM: self._weights.norm.data_ptr(),
            Model.HEAD: self._weights.head.tiles.data_ptr(),
            Model.HEAD_BITS: self._weights.head.bits,
        }.items():
            places[place] = value
        return places

    def run(
        self,
        hidden: Tensor,
        cos: Tensor,
        sin: Tensor,
        slots: Sequence[int],
        spans: Sequence[Span],
        logit_rows: Sequence[int],
    ) -> Tensor:
        """hidden float32 [R, hidden], the embeddings, is overwritten; cos, sin float32 [R, 1, head_dim]; slots of the
        R rows. Writes keys and values and returns the logits of `logit_rows`, float32 [N, vocab], which stay as they
        are until the next call."""
        tables = [np.array(span.block_table, np.int64) for span in spans]
        span_table = np.array(
            [(span.rows, span.context, table.ctypes.data) for span, table in zip(spans, tables, strict=True)], np.int64
        )
        slot_table, logit_table = np.array(slots, np.int64), np.array(logit_rows, np.int64)
        parts = sum(span.rows * -(-span.context // CHUNK) for span in spans if span.rows <= FEW_ROWS)
        self._make_room(len(slots), len(logit_rows), parts)
        self._buffers[Work.COUNTERS].zero_()
        work = np.zeros(WORK_PLACES, np.int64)
        for place, buffer in self._buffers.items():
            work[place] = buffer.data_ptr()
        for place, value in {
            Work.MODEL: self._model.ctypes.data,
            Work.ROWS: len(slots),
            Work.SPANS: len(spans),
            Work.LOGITS: len(logit_rows),
            Work.SPAN: span_table.ctypes.data,
            Work.SLOT: slot_table.ctypes.data,
            Work.COS: cos.data_ptr(),
            Work.SIN: sin.data_ptr(),
            Work.LOGIT_ROW: logit_table.ctypes.data,
            Work.X: hidden.data_ptr(),
            Work.SCRATCH_BYTES: self._scratch_bytes,
        }.items():
            work[place] = value
        with _one_call:
            self._teams.run(work.ctypes.data)
        return self._buffers[Work.OUT][: len(logit_rows)]

    def _make_room(self, *needed: int) -> None:
        if all(need <= room for need, room in zip(needed, self._room, strict=True)):
            return
        rows, logits, parts = map(max, needed, self._room)
        self._room = (rows, logits, parts)
        shape = self._shape
        attended = shape.n_head * shape.head_dim
        width = -(-(attended + 2 * shape.n_kv_head * shape.head_dim) // GROUP) * GROUP
        widest = -(-max(shape.hidden, attended, shape.inner) // GROUP) * GROUP
        self._scratch_bytes = scratch_bytes(shape.hidden, attended, shape.n_head, rows)
        self._buffers = {
            Work.QKV: torch.empty(rows, width),
            Work.Q: torch.empty(rows, attended),
            Work.CODES: torch.empty(2, rows, widest // GROUP, X_BYTES, dtype=torch.int8),
            Work.SCALES: torch.empty(2, rows, widest // GROUP),
            Work.SUMS: torch.empty(2, rows, widest // GROUP, 2),
            Work.OUT: torch.empty(logits, shape.vocab),
            Work.PARTS: torch.empty(parts, attended),
            Work.STATES: torch.empty(parts, shape.n_head, 2),
            Work.COUNTERS: torch.empty(5 * len(self._weights.layers) + 1, dtype=torch.int64),
            Work.SCRATCH: torch.empty(self._threads, self._scratch_bytes, dtype=torch.uint8),
        }

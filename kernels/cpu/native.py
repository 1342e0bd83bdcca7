"""Runs the few rows of a step natively: packed weights, the paged cache in place, one call on all threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from kernels.contract import Span
from kernels.cpu.packing import GROUP
from kernels.cpu.step import (
    LAYER_PLACES,
    MODEL_PLACES,
    SPAN_PLACES,
    VECTOR,
    WORK_PLACES,
    Layer,
    Model,
    Work,
    chunk_keys,
    scratch_bytes,
    serve_steps,
)
from kernels.cpu.team import Team
from kernels.cpu.weights import DecoderShape, NativeLayer, NativeWeights


@cache
def _team(size: int) -> Team:
    return Team(size, serve_steps)


_one_call = Lock()


class NativeDecoder:
    """A decoder over packed weights and a paged cache ([2, blocks, block_size, n_kv_head, head_dim] per layer, in
    bfloat16 or float32), for up to `max_rows` rows at a time."""

    def __init__(
        self,
        shape: DecoderShape,
        weights: NativeWeights,
        windows: Sequence[int | None],
        cache: Sequence[Tensor],
        threads: int,
        max_rows: int,
    ) -> None:
        self._shape, self._weights, self._cache = shape, weights.in_one_piece(), cache
        self.max_rows = max_rows
        self._team = _team(threads)
        self._block_size = cache[0].shape[2]
        self._vectors = -(-shape.head_dim // VECTOR) * VECTOR
        self._eps = torch.tensor([shape.norm_eps], dtype=torch.float32)
        self._layer_table = np.array(
            [self._layer(*parts) for parts in zip(self._weights.layers, windows, cache, strict=True)], np.int64
        )
        self._model = self._describe_model()
        attended = shape.n_head * shape.head_dim
        width = -(-(attended + 2 * shape.n_kv_head * shape.head_dim) // GROUP) * GROUP
        widest = -(-max(shape.hidden, attended, shape.inner) // GROUP) * GROUP
        block = -(-self._block_size // VECTOR) * VECTOR * shape.n_kv_head * self._vectors
        self._scratch_bytes = scratch_bytes(shape.hidden, attended, max_rows, block)
        self._buffers = {
            Work.QKV: torch.empty(max_rows, width),
            Work.Q: torch.zeros(max_rows, shape.n_head, self._vectors),
            Work.CODES: torch.empty(2, max_rows, widest, dtype=torch.int8),
            Work.SCALES: torch.empty(2, max_rows, widest // GROUP),
            Work.SUMS: torch.empty(2, max_rows, widest // GROUP),
            Work.OUT: torch.empty(max_rows, shape.vocab),
            Work.COUNTERS: torch.empty(5 * len(weights.layers) + 1, dtype=torch.int64),
            # Zeros: where a block or a head does not fill its vectors, the rest is read too.
            Work.SCRATCH: torch.zeros(threads, self._scratch_bytes, dtype=torch.uint8),
            Work.PARTS: torch.empty(0),
            Work.STATES: torch.empty(0),
        }

    def _layer(self, layer: NativeLayer, window: int | None, cache: Tensor) -> list[int]:
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
        places[Layer.KEYS], places[Layer.VALUES] = cache[0].data_ptr(), cache[1].data_ptr()
        return places

    def _describe_model(self) -> np.ndarray:
        shape = self._shape
        places = np.zeros(MODEL_PLACES, np.int64)
        for place, value in {
            Model.N_LAYER: len(self._weights.layers),
            Model.HIDDEN: shape.hidden,
            Model.N_HEAD: shape.n_head,
            Model.N_KV_HEAD: shape.n_kv_head,
            Model.HEAD_DIM: shape.head_dim,
            Model.INNER: shape.inner,
            Model.VOCAB: shape.vocab,
            Model.GELU: shape.activation == "gelu_tanh",
            Model.BLOCK_SIZE: self._block_size,
            Model.KV_BFLOAT16: self._cache[0].dtype == torch.bfloat16,
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
        self._reserve_parts(spans)
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
            self._team.run(work.ctypes.data)
        return self._buffers[Work.OUT][: len(logit_rows)]

    def _reserve_parts(self, spans: Sequence[Span]) -> None:
        keys = chunk_keys(self._block_size)
        parts = sum(span.rows * -(-span.context // keys) for span in spans)
        values = parts * self._shape.n_head * self._vectors
        if self._buffers[Work.PARTS].numel() < values:
            self._buffers[Work.PARTS] = torch.empty(values)
            self._buffers[Work.STATES] = torch.empty(2 * parts * self._shape.n_head)

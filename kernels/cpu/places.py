"""The arrays of int64 by which a model and its work are described to the native kernels: what lies where.

Most entries are addresses. Every row buffer of floats starts its rows at multiples of 32 values.
"""

from __future__ import annotations

from enum import IntEnum, auto


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
    """Whether attention reads keys and values in bfloat16, else in float32."""
    KEY_BITS = auto()
    """Of a code; 0 where they are stored as attention reads them."""
    KEY_GROUP = auto()
    KEY_ROTATED = auto()
    VALUE_BITS = auto()
    VALUE_GROUP = auto()
    VALUE_ROTATED = auto()
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
    """See `kernels.cpu.attention`."""


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
    """float32 [R, head_dim], as `kernels.contract.Kernels.rotary_kv_write` takes them."""
    LOGIT_ROW = auto()
    """int64 [N]"""
    X = auto()
    """float32 [R, hidden]: the embeddings, overwritten."""
    OUT = auto()
    """float32 [N, vocab]"""
    QKV = auto()
    Q = auto()
    """float32, or pairs of bfloat16, [R, n_head, head_dim]: scaled."""
    CODES = auto()
    SCALES = auto()
    SUMS = auto()
    """The quantized input of the linear layer that comes next."""
    PARTS = auto()
    """float32 [units, n_head, head_dim]: attention over one chunk of keys, not yet divided by its state's sum."""
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


MODEL_PLACES, LAYER_PLACES, WORK_PLACES, SPAN_PLACES = (len(places) for places in (Model, Layer, Work, Span))

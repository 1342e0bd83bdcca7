"""The kernel contract: every op that the decoder needs, once, with shapes, dtypes and units.

Sizes: T rows (tokens) of a step; Hq query heads, Hkv key/value heads, D values of a head, G = Hq / Hkv query heads
that share one key/value head (MHA: G = 1, MQA: Hkv = 1).

The cache of one layer is a `LayerCache`: keys and values in blocks of `block_size` tokens. Token i of a sequence lives
in slot `block_table[i // block_size] * block_size + i % block_size`. Slots that no live token was written to hold
anything, NaN included, and must never reach a result.

Activations are in the dtype that the kernels were made for; sums (norms, softmax, dot products) accumulate in float32
at least. The cache is stored as its format says (`kernels.kv_format`): converted on write and on read, inside the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor

from kernels.kv_format import Storage

Activation = Literal["silu", "gelu_tanh"]

PackedLinear = Any
"""A weight (and bias) in the form its kernels read fastest; only they can look inside."""
AttentionPlan = Any
"""What the attention of every layer of one step reads; only the kernels that made it can look inside."""


@dataclass(frozen=True, slots=True)
class Plane:
    """The keys or the values of one layer."""

    blocks: Tensor
    """uint8 [num_blocks, block_bytes]; what lies where in a block is its kernels' business."""
    storage: Storage
    block_size: int
    n_kv_head: int
    head_dim: int


class LayerCache(NamedTuple):
    keys: Plane
    values: Plane


class Span(NamedTuple):
    """One sequence's share of a step, as attention sees it: a decode when `rows` is 1, else a prefill chunk."""

    rows: int
    """Query rows, the next ones of the step after those of the previous span."""
    context: int
    """Tokens cached once this step is written; the queries are the last `rows` of them."""
    block_table: Sequence[int]
    """At least ceil(context / block_size) blocks."""


class Draw(NamedTuple):
    """How to draw the next token of one sequence from its logits.

    Each filter is a floor under the weights exp(logit / temperature), so that tokens as likely as the last one kept are
    kept too: the top_k heaviest; of those the heaviest that together have top_p of their weight; at least min_p of the
    heaviest one's weight.
    """

    temperature: float
    """0: the likeliest token, the first of equals."""
    top_k: int
    """0 is off."""
    top_p: float
    min_p: float
    number: float
    """In [0, 1): the token at which the cumulative distribution of those kept, by id, passes it."""


class Kernels(Protocol):
    """All ops run on the device and in the dtype that the kernels were made for."""

    @property
    def draw(self) -> Callable[[Tensor, Sequence[Draw]], list[int]] | None:
        """logits float32 [N, vocab] and how to draw from each row -> tokens, -1 where the logits have no finite
        maximum. None: the engine draws, on the host."""

    def pack_linear(self, weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
        """Prepare a weight [out, in] and bias [out]. Neither is needed afterwards."""

    def linear(self, x: Tensor, packed: PackedLinear) -> Tensor:
        """x [T, in] -> x @ weight.T + bias, [T, out]."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x [..., N] * weight [N] / sqrt(mean(x^2) + eps). Zhang & Sennrich 2019."""

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """(rms_norm(x + residual), x + residual), both [T, N]."""

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """gate_up [T, 2F], gate then up -> activation(gate) * up, [T, F]. Shazeer 2020."""

    def rotary_kv_write(self, heads: Tensor, cos: Tensor, sin: Tensor, layer: LayerCache, slots: Tensor) -> Tensor:
        """Rotate the queries and keys of heads [T, Hq + 2 Hkv, D] (queries, keys, values; may be overwritten), pairing
        value i with i + D/2 (GPT-NeoX halves; Su et al. 2021), and scatter keys and values into a layer's cache at
        slots [T] int64, each at most once. Returns the queries [T, Hq, D] as this layer's `paged_attention` takes them.

        cos, sin [T, 1, D]: of each row's position, each half repeating the D/2 angles, sin negated in the first half.
        """

    def plan_attention(
        self, spans: Sequence[Span], layer: LayerCache, n_head: int, window: int | None
    ) -> AttentionPlan:
        """Digest the spans of a step, once for all layers, which are like this one. `n_head` is Hq; with a `window`
        each query sees that many keys at most, itself included. Decodes do best before all prefill chunks, those of
        similar length as neighbours."""

    def paged_attention(self, q: Tensor, layer: LayerCache, plan: AttentionPlan) -> Tensor:
        """Causal attention of q [T, Hq, D], as `rotary_kv_write` returns it, over each span's own cached tokens, this
        step's included (they must have been written) -> [T, Hq * D]. Scores are scaled by 1 / sqrt(D)."""

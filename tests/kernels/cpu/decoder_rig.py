"""A random decoder over packed weights, stepped by the native kernels and, beside them, in plain float32 torch.

Both round activations to 8 bits, and keys and values perhaps to bfloat16. Two float32 results that differ in the last
bit may fall on different sides of such a rounding, after which no tight comparison is possible; so the reference also
says for which rows each rounding was clear.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.contract import Activation, Span
from kernels.cpu import packing
from kernels.cpu.packing import GROUP
from kernels.cpu.weights import DecoderShape, NativeLayer, NativeLinear, NativeWeights

EPS = 1e-5
NEAR = 1e-4
"""How close to the middle between two integers a value may be rounded either way."""
NEAR_BFLOAT16 = 3e-7
"""The same for keys and values, relative to the largest of a row."""
MAX_ROWS = 64
SPARE_BLOCKS = 3

CLOSE = 1e-5
NOISE = 3e-2
TRIES = 300

Batch = Sequence[tuple[int, int]]
"""Spans: rows, and tokens of context with these rows."""


@dataclass(frozen=True, slots=True)
class Model:
    hidden: int = 96
    n_kv_head: int = 2
    group: int = 3
    """Query heads of a key/value head."""
    head_dim: int = 32
    inner: int = 80
    vocab: int = 150
    activation: Activation = "silu"
    biases: bool = False
    qk_norm: bool = False
    windows: tuple[int | None, ...] = (None, None)
    """One for each layer."""
    formats: tuple[str, ...] = ("int8",)
    """Of one linear layer after the other, again and again."""
    block_size: int = 16
    kv_dtype: torch.dtype = torch.float32
    threads: int = 2
    head_scale: float = 1.0


@dataclass(slots=True)
class Linear:
    """A linear layer as the kernels have it, and the values that it stands for."""

    native: NativeLinear
    weight: Tensor

    @classmethod
    def random(cls, out: int, width: int, format: str, biased: bool, scale: float = 1.0) -> Linear:
        weight = torch.randn(out, width) * scale * width**-0.5
        tiles, bits = packing.pack(weight, format)
        values = packing.quantize(weight, bits).dequantize()[:, :width]
        return cls(NativeLinear(tiles, bits, torch.randn(out) * 0.3 if biased else None), values)


def in_eight_bits(x: Tensor) -> tuple[Tensor, Tensor]:
    """[R, K] as the linear layers read it, integers times a scale for each 32 values; and the rows [R] in which a
    rounding was not clear."""
    groups = F.pad(x, (0, -x.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 127
    exact = torch.where(scale == 0, 0.0, groups / scale)
    unclear = ((exact - exact.floor() - 0.5).abs() < NEAR).flatten(1).any(1)
    return (exact.round() * scale).flatten(1)[:, : x.shape[1]], unclear


def unclear_in_bfloat16(x: Tensor) -> Tensor:
    """The rows [R] of x [R, ...] in which rounding to bfloat16 is not clear."""
    x = x.flatten(1)
    middle = (x.view(torch.int32) & ~0xFFFF | 0x8000).view(torch.float32)
    return ((x - middle).abs() < NEAR_BFLOAT16 * x.abs().amax(1, keepdim=True)).any(1)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


@dataclass(slots=True)
class Result:
    logits: Tensor
    """[N, vocab]"""
    cache: list[Tensor]
    """Of each layer, after the step."""


@dataclass(slots=True)
class Expected(Result):
    clear: Tensor
    """[R], the rows all whose roundings were clear, and those of the tokens that they attend to."""
    wanted: list[int]
    slots: list[int]


class Rig:
    """A model, a cache whose every unused value is NaN, and the decoder under test. `decoder` is the class."""

    def __init__(self, model: Model, decoder: Callable[..., Any], blocks: int = 200, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model, self.blocks = model, blocks
        formats = cycle(model.formats)
        attended, kv_size = model.n_kv_head * model.group * model.head_dim, model.n_kv_head * model.head_dim

        def linear(out: int, width: int, scale: float = 1.0, biased: bool = model.biases) -> Linear:
            return Linear.random(out, width, next(formats), biased, scale)

        def norm(size: int) -> Tensor:
            return torch.empty(size).uniform_(0.5, 1.5)

        self.linears = [
            {
                "qkv": linear(attended + 2 * kv_size, model.hidden),
                "out": linear(model.hidden, attended),
                "gate_up": linear(2 * model.inner, model.hidden),
                "down": linear(model.hidden, model.inner),
            }
            for _ in model.windows
        ]
        self.norms = [
            {
                "attention_norm": norm(model.hidden),
                "mlp_norm": norm(model.hidden),
                "q_norm": norm(model.head_dim) if model.qk_norm else None,
                "k_norm": norm(model.head_dim) if model.qk_norm else None,
            }
            for _ in model.windows
        ]
        self.norm, self.head = norm(model.hidden), linear(model.vocab, model.hidden, model.head_scale, biased=False)
        shape = (2, blocks, model.block_size, model.n_kv_head, model.head_dim)
        self.cache = [torch.full(shape, torch.nan, dtype=model.kv_dtype) for _ in model.windows]
        layers = [
            NativeLayer(**norms, **{name: linear.native for name, linear in linears.items()})  # type: ignore[arg-type]
            for norms, linears in zip(self.norms, self.linears, strict=True)
        ]
        self.decoder = decoder(
            DecoderShape(
                hidden=model.hidden,
                n_head=model.n_kv_head * model.group,
                n_kv_head=model.n_kv_head,
                head_dim=model.head_dim,
                inner=model.inner,
                vocab=model.vocab,
                activation=model.activation,
                norm_eps=EPS,
            ),
            NativeWeights(layers, self.norm, self.head.native),
            model.windows,
            self.cache,
            model.threads,
            MAX_ROWS,
        )

    def step(self, batch: Batch, logit_rows: Sequence[int] | None = None) -> tuple[Result, Expected]:
        """The kernels' result and the expected one for sequences of random tokens whose last rows are computed, the
        earlier ones being in the cache. Without `logit_rows` each row's logits are asked for."""
        spans, slots, positions = self.lay_out(batch)
        hidden = torch.randn(len(slots), self.model.hidden)
        wanted = list(range(len(slots))) if logit_rows is None else list(logit_rows)
        cos, sin = self.angles(positions)
        expected = self.reference(hidden.clone(), cos, sin, slots, spans, wanted)
        return Result(self.decoder.run(hidden, cos, sin, slots, spans, wanted).clone(), self.cache), expected

    def lay_out(self, batch: Batch) -> tuple[list[Span], list[int], list[int]]:
        """Spans in shuffled blocks, slots and positions of their rows, and NaN in every slot but those of the tokens
        before."""
        size = self.model.block_size
        free = list(range(self.blocks))
        random.Random(len(batch)).shuffle(free)
        spans, slots, positions = [], [], []
        for layer in self.cache:
            layer.fill_(torch.nan)
        for rows, context in batch:
            table = [free.pop() for _ in range(-(-context // size))]
            assert len(free) >= SPARE_BLOCKS
            places = [table[i // size] * size + i % size for i in range(context)]
            before = torch.tensor(places[: context - rows], dtype=torch.int64)
            for layer in self.cache:
                values = torch.randn(2, len(before), *layer.shape[3:]).to(layer.dtype)
                layer.view(2, -1, *layer.shape[3:])[:, before] = values
            spans.append(Span(rows, context, table))
            slots += places[context - rows :]
            positions += range(context - rows, context)
        return spans, slots, positions

    def angles(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """cos and sin as `kernels.contract.Kernels.rotary_` takes them."""
        pairs = torch.arange(self.model.head_dim // 2)
        angles = torch.tensor(positions).unsqueeze(-1) / 10000 ** (2 * pairs / self.model.head_dim)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1).unsqueeze(1), torch.cat((-sin, sin), -1).unsqueeze(1)

    def reference(
        self, x: Tensor, cos: Tensor, sin: Tensor, slots: list[int], spans: Sequence[Span], wanted: list[int]
    ) -> Expected:
        model = self.model
        n_head, sizes = model.n_kv_head * model.group, [span.rows for span in spans]
        unclear = torch.zeros(len(x), dtype=torch.bool)

        def apply(linear: Linear, x: Tensor) -> Tensor:
            nonlocal unclear
            rounded, risky = in_eight_bits(x)
            unclear = unclear | risky
            return F.linear(rounded, linear.weight, linear.native.bias)

        caches = []
        for linears, norms, window, cache in zip(self.linears, self.norms, model.windows, self.cache, strict=True):
            heads = apply(linears["qkv"], rms_norm(x, norms["attention_norm"])).unflatten(1, (-1, model.head_dim))
            q, k, v = heads.split([n_head, model.n_kv_head, model.n_kv_head], 1)
            if model.qk_norm:
                q, k = rms_norm(q, norms["q_norm"]), rms_norm(k, norms["k_norm"])
            q, k = (y * cos + torch.cat(y.chunk(2, -1)[::-1], -1) * sin for y in (q, k))
            caches.append(cache.clone())
            caches[-1].view(2, -1, *cache.shape[3:])[:, slots] = torch.stack((k, v)).to(cache.dtype)
            if cache.dtype == torch.bfloat16:
                unclear = unclear | unclear_in_bfloat16(k) | unclear_in_bfloat16(v)
            unclear = torch.cat([rows.cumsum(0) > 0 for rows in unclear.split(sizes)])
            attended = [
                self._attend(rows, span, caches[-1], window) for rows, span in zip(q.split(sizes), spans, strict=True)
            ]
            x = x + apply(linears["out"], torch.cat(attended))
            gate, up = apply(linears["gate_up"], rms_norm(x, norms["mlp_norm"])).chunk(2, -1)
            gate = F.silu(gate) if model.activation == "silu" else F.gelu(gate, approximate="tanh")
            x = x + apply(linears["down"], gate * up)
        logits = apply(self.head, rms_norm(x, self.norm))[wanted]
        return Expected(logits, caches, ~unclear, wanted, slots)

    def _attend(self, q: Tensor, span: Span, cache: Tensor, window: int | None) -> Tensor:
        """q [rows, n_head, head_dim] over a span's tokens -> [rows, n_head * head_dim]."""
        tokens = cache[:, list(span.block_table)].flatten(1, 2)[:, : span.context].float()
        k, v = tokens.repeat_interleave(self.model.group, 2)
        scores = torch.einsum("rhd,khd->hrk", q, k) * self.model.head_dim**-0.5
        position = torch.arange(span.context - span.rows, span.context).unsqueeze(-1)
        key = torch.arange(span.context)
        hidden = (key > position) | (key <= position - (window or span.context))
        return torch.einsum("hrk,khd->rhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v).flatten(1)


def difference(ours: Tensor, theirs: Tensor) -> Tensor:
    """Of each row [N], relative to its length."""
    return (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)


def check(rig: Rig, *batches: Batch, logit_rows: Sequence[int] | None = None) -> None:
    """Step through the batches. Where every rounding was clear the kernels differ from the reference in the order of
    their sums only; elsewhere one rounding the other way may have made others do so, until the row has a noise of
    8-bit activations of its own. Each batch is drawn anew until it has a row that is clear."""
    for batch in batches:
        for _ in range(TRIES):
            ours, expected = rig.step(batch, logit_rows)
            clear = expected.clear[expected.wanted]
            off = difference(ours.logits, expected.logits)
            assert off[clear].nan_to_num(torch.inf).le(CLOSE).all(), f"{batch}: {off[clear]}"
            assert off.nan_to_num(torch.inf).le(NOISE).all(), f"{batch}: {off}"
            check_cache(ours, expected)
            if clear.any():
                break
        else:
            raise AssertionError(f"in {TRIES} tries of {batch} no row was clear")


def check_cache(ours: Result, expected: Expected) -> None:
    """The new slots hold the keys and values, the others what they held."""
    for layer, theirs in zip(ours.cache, expected.cache, strict=True):
        layer, theirs = layer.flatten(1, 2), theirs.flatten(1, 2)
        others = torch.ones(layer.shape[1], dtype=torch.bool)
        others[expected.slots] = False
        bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[layer.dtype]
        assert torch.equal(layer[:, others].view(bits), theirs[:, others].view(bits))
        new, theirs = (x[:, expected.slots].float().flatten(2) for x in (layer, theirs))
        off = difference(new, theirs).amax(0)
        assert off.nan_to_num(torch.inf).le(NOISE).all()
        assert off[expected.clear].nan_to_num(torch.inf).le(CLOSE).all()

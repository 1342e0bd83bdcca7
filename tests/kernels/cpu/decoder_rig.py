"""A random decoder over packed weights, stepped by the native kernels and, beside them, in float32 by torch.

Both round activations, to 8 bits against weights of 4 and to 16 against weights of 8. Two float32 results that differ
in the last bit may fall on different sides of a rounding to 8 bits, after which no tight comparison is possible; so the
reference also says for which rows each of these was clear. What the kernels rounded to store it in the cache is first
compared, then taken over.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as F
from native_cache import Cache
from torch import Tensor

from kernels.contract import Activation, Span
from kernels.cpu import packing
from kernels.cpu.packing import GROUP
from kernels.cpu.tier import has_pairs
from kernels.cpu.weights import DecoderShape, NativeLayer, NativeLinear, NativeWeights
from kernels.kv_format import Groups, KVFormat, Storage, rotate

EPS = 1e-5
NEAR = 1e-4
"""How close to the middle between two integers a value may be rounded either way."""
CLOSE = {"int4": 1e-5, "int8": 1e-2}
"""Where no rounding to 8 bits was near the middle; but those to 16 bits, which int8 wants, always are somewhere, and
what one of them changes may turn one to 8 bits in a layer of the other format."""
NOISE = 5e-2
TRIES = 100
SPARE_BLOCKS = 3

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
    kv: str = "float32"
    """A dtype, or as `Groups` describe themselves: int8/16, int4/32 rotated; keys and values apart with a plus."""
    threads: int = 2
    head_scale: float = 1.0

    @property
    def kv_format(self) -> KVFormat:
        parts = [self._storage(part) for part in self.kv.split(" + ")]
        return KVFormat(parts[0], parts[-1])

    def _storage(self, text: str) -> Storage:
        if "/" not in text:
            return getattr(torch, text)
        name, _, rest = text.partition("/")
        size, _, rotated = rest.partition(" ")
        return Groups(int(name[-1]), int(size), bool(rotated))

    @property
    def near(self) -> float:
        """A rotation adds up all of a head, so that a score is less exact than its sum of products."""
        return 10 * NEAR if "rotated" in self.kv else NEAR

    @property
    def attends_in_bfloat16(self) -> bool:
        """Where the CPU multiplies pairs of bfloat16, attention rounds queries, weights and expanded groups to them."""
        return has_pairs() and self.kv != "float32"


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


@dataclass(slots=True)
class Layer:
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear
    attention_norm: Tensor
    mlp_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None

    def native(self) -> NativeLayer:
        return NativeLayer(
            attention_norm=self.attention_norm,
            qkv=self.qkv.native,
            q_norm=self.q_norm,
            k_norm=self.k_norm,
            out=self.out.native,
            mlp_norm=self.mlp_norm,
            gate_up=self.gate_up.native,
            down=self.down.native,
        )


@dataclass(slots=True)
class Work:
    """What a step is given: see `kernels.cpu.native.NativeDecoder.run`."""

    hidden: Tensor
    cos: Tensor
    sin: Tensor
    slots: list[int]
    spans: list[Span]
    logit_rows: list[int]
    places: list[list[int]] = field(default_factory=list)
    """Of each span, the slots of all its tokens."""

    def run(self, decoder: Any) -> Tensor:
        hidden = self.hidden.clone()
        return decoder.run(hidden, self.cos, self.sin, self.slots, self.spans, self.logit_rows).clone()


class Rig:
    """A model, its cache and the decoder under test. `decoder` is the class."""

    def __init__(self, model: Model, decoder: Callable[..., Any], blocks: int = 300, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model, self.blocks = model, blocks
        formats = cycle(model.formats)
        attended, kv_size = model.n_kv_head * model.group * model.head_dim, model.n_kv_head * model.head_dim

        def linear(out: int, width: int, scale: float = 1.0, biased: bool = model.biases) -> Linear:
            return Linear.random(out, width, next(formats), biased, scale)

        def norm(size: int) -> Tensor:
            return torch.empty(size).uniform_(0.5, 1.5)

        self.layers = [
            Layer(
                qkv=linear(attended + 2 * kv_size, model.hidden),
                out=linear(model.hidden, attended),
                gate_up=linear(2 * model.inner, model.hidden),
                down=linear(model.hidden, model.inner),
                attention_norm=norm(model.hidden),
                mlp_norm=norm(model.hidden),
                q_norm=norm(model.head_dim) if model.qk_norm else None,
                k_norm=norm(model.head_dim) if model.qk_norm else None,
            )
            for _ in model.windows
        ]
        self.norm, self.head = norm(model.hidden), linear(model.vocab, model.hidden, model.head_scale, biased=False)
        self.cache = [
            Cache(model.kv_format, blocks, model.block_size, model.n_kv_head, model.head_dim) for _ in model.windows
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
            NativeWeights([layer.native() for layer in self.layers], self.norm, self.head.native),
            model.windows,
            [cache.planes for cache in self.cache],
            model.threads,
        )

    @property
    def close(self) -> float:
        return max(CLOSE[format] for format in self.model.formats)

    def work(self, batch: Batch, logit_rows: Sequence[int] | None = None) -> Work:
        """Random tokens in shuffled blocks. Those before the last rows are in the cache, and NaN everywhere else.
        Without `logit_rows` each row's logits are asked for."""
        model, size = self.model, self.model.block_size
        free = list(range(self.blocks))
        random.Random(len(batch)).shuffle(free)
        for cache in self.cache:
            cache.poison()
        spans, slots, positions, all_places = [], [], [], []
        for rows, context in batch:
            table = [free.pop() for _ in range(-(-context // size))]
            assert len(free) >= SPARE_BLOCKS
            places = [table[i // size] * size + i % size for i in range(context)]
            before = places[: context - rows]
            for cache in self.cache:
                cache.write(before, *torch.randn(2, len(before), model.n_kv_head, model.head_dim))
            spans.append(Span(rows, context, table))
            slots += places[context - rows :]
            positions += range(context - rows, context)
            all_places.append(places)
        hidden = torch.randn(len(slots), model.hidden)
        wanted = list(range(len(slots))) if logit_rows is None else list(logit_rows)
        return Work(hidden, *self._angles(positions), slots, spans, wanted, all_places)

    def _angles(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """cos and sin as `kernels.contract.Kernels.rotary_kv_write` takes them."""
        pairs = torch.arange(self.model.head_dim // 2)
        angles = torch.tensor(positions).unsqueeze(-1) / 10000 ** (2 * pairs / self.model.head_dim)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1).unsqueeze(1), torch.cat((-sin, sin), -1).unsqueeze(1)

    def reference(self, work: Work) -> tuple[Tensor, Tensor]:
        """The logits [N, vocab] of a step whose keys and values the cache already holds, and which of its rows [N]
        were clear in all that was rounded. Fails where a key or a value is not what it should be."""
        model, x = self.model, work.hidden
        n_head, rows_of = model.n_kv_head * model.group, [span.rows for span in work.spans]
        clear = torch.full((len(x),), not model.attends_in_bfloat16)

        def apply(linear: Linear, x: Tensor) -> Tensor:
            nonlocal clear
            rounded, unclear = as_codes(x, 8 if linear.native.bits == 4 else 16, model.near)
            clear = clear & ~unclear
            return F.linear(rounded, linear.weight, linear.native.bias)

        for layer, cache, window in zip(self.layers, self.cache, model.windows, strict=True):
            heads = apply(layer.qkv, rms_norm(x, layer.attention_norm)).unflatten(1, (-1, model.head_dim))
            q, k, v = heads.split([n_head, model.n_kv_head, model.n_kv_head], 1)
            if layer.q_norm is not None and layer.k_norm is not None:
                q, k = rms_norm(q, layer.q_norm), rms_norm(k, layer.k_norm)
            q, k = (y * work.cos + torch.cat(y.chunk(2, -1)[::-1], -1) * work.sin for y in (q, k))
            self._check_kept(cache, work.slots, (k, v), clear)
            attended = [
                self._attend(rows, *cache.read(places), window)
                for rows, places in zip(q.split(rows_of), work.places, strict=True)
            ]
            x = x + apply(layer.out, torch.cat(attended))
            gate, up = apply(layer.gate_up, rms_norm(x, layer.mlp_norm)).chunk(2, -1)
            gate = F.silu(gate) if model.activation == "silu" else F.gelu(gate, approximate="tanh")
            x = x + apply(layer.down, gate * up)
        logits = apply(self.head, rms_norm(x, self.norm))
        return logits[work.logit_rows], clear[work.logit_rows]

    def _check_kept(self, cache: Cache, slots: Sequence[int], expected: tuple[Tensor, Tensor], clear: Tensor) -> None:
        for plane, ours, theirs in zip(cache.planes, cache.read(slots), expected, strict=True):
            off = difference(ours.flatten(1), theirs.flatten(1)).nan_to_num(torch.inf)
            rounding = rounding_of(theirs, plane.storage)
            assert (off < self.close + rounding)[clear].all()
            assert (off < NOISE + rounding).all()

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        """q [rows, n_head, head_dim], of the last rows of the tokens of k and v -> [rows, n_head * head_dim]."""
        k, v = (x.float().repeat_interleave(self.model.group, 1) for x in (k, v))
        scores = torch.einsum("rhd,khd->hrk", q, k) * self.model.head_dim**-0.5
        position, key = torch.arange(len(k) - len(q), len(k)).unsqueeze(-1), torch.arange(len(k))
        hidden = (key > position) | (key <= position - (window or len(k)))
        return torch.einsum("hrk,khd->rhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v).flatten(1)


def as_codes(x: Tensor, bits: int, near: float) -> tuple[Tensor, Tensor]:
    """[R, K] as the linear layers read it, integers times a scale for each 32 values; and the rows [R] in which a
    rounding to 8 bits was not clear: with 16, one the other way changes less than is allowed anyway. 8 bits are the
    upper half of 16."""
    groups = F.pad(x, (0, -x.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / (127 * 256)
    exact = torch.where(scale == 0, 0.0, groups / scale)
    codes = exact.round() if bits == 16 else 256 * ((exact.round() + 128) / 256).floor()
    between = (exact / 256) % 1 - 127.5 / 256
    unclear = (between.abs() < near).flatten(1).any(1) & (bits == 8)
    return (codes * scale).flatten(1)[:, : x.shape[1]], unclear


def rounding_of(x: Tensor, storage: Storage) -> Tensor:
    """How far rows [N, n_kv_head, head_dim] may be from what is stored of them, relative to their length [N]."""
    if isinstance(storage, Groups):
        values = rotate(x) if storage.rotated else x
        low, high = values.unflatten(-1, (-1, storage.size)).aminmax(dim=-1)
        # Half a step each, and a scale and an offset in float16.
        most = (high - low) / (2**storage.bits - 1) * 0.5 + 2.0**-10 * (low.abs() + high.abs())
        return most.square().sum((-1, -2)).mul(storage.size).sqrt() / x.flatten(1).norm(dim=-1)
    return torch.full((len(x),), 2.0**-8 if storage == torch.bfloat16 else 0.0)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def difference(ours: Tensor, theirs: Tensor) -> Tensor:
    """Of each row [N], relative to its length."""
    return (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)


def check(rig: Rig, *batches: Batch, logit_rows: Sequence[int] | None = None) -> None:
    """Step through the batches. Where every rounding was clear the kernels differ from the reference in the order of
    their sums only; elsewhere one rounding the other way may have made others do so, until the row has a noise of
    8-bit activations of its own. Each batch is drawn anew until it has a row that is clear, where there can be one."""
    for batch in batches:
        for _ in range(TRIES):
            work = rig.work(batch, logit_rows)
            before = [contents(cache, rig) for cache in rig.cache]
            ours = work.run(rig.decoder)
            expected, clear = rig.reference(work)
            off = difference(ours, expected).nan_to_num(torch.inf)
            assert (off[clear] < rig.close).all(), f"{batch}: {off[clear]}"
            assert (off < NOISE).all(), f"{batch}: {off}"
            for kept, cache in zip(before, rig.cache, strict=True):
                check_others(kept, contents(cache, rig), work.slots, rig.model)
            if clear.any() or rig.model.attends_in_bfloat16 or rig.model.near > NEAR:
                break
        else:
            raise AssertionError(f"in {TRIES} tries of {batch} no row was clear")


def contents(cache: Cache, rig: Rig) -> tuple[Tensor, Tensor]:
    return cache.read(range(rig.blocks * rig.model.block_size))


def check_others(
    before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], slots: Sequence[int], model: Model
) -> None:
    """Slots that the step was not to write hold what they held; but the value next to a new one may be zero now."""
    others = torch.ones(len(before[0]), dtype=torch.bool)
    others[list(slots)] = False
    for kind, (old, new) in enumerate(zip(before, after, strict=True)):
        same = (old == new) | (old.isnan() & new.isnan())
        if kind == 1 and model.kv != "float32":
            next_to_new = torch.tensor([slot + 1 for slot in slots if slot % 2 == 0], dtype=torch.int64)
            same[next_to_new] |= new[next_to_new] == 0
        assert same[others].all()

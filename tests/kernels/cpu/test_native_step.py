"""The native step against a plain one in torch that rounds its activations in the same places.

Every slot of the cache that no token was written to, and every block that no table names, holds NaN.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from decoder_rig import NOISE, Batch, Model, Rig, Work, check, difference

RAGGED: Batch = [(1, length) for length in (1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 255, 256, 257, 513)]
BATCHES: tuple[Batch, ...] = (
    [(1, 1)],
    [(1, 600)],
    RAGGED,
    [(16, 16)],
    [(17, 17), (64, 64), (1, 7)],
    [(3, 3), (1, 7), (16, 40), (1, 300), (5, 261)],
    [(2, 257), (1, 256), (7, 512), (1, 2), (11, 30), (16, 300)],
    [(16, 16), (33, 31 + 33), (1, 1), (15, 280), (100, 333)],
)


KV = ("float32", "bfloat16", "int8/32", "int4/16 rotated", "int8/32 + int4/32")


def dealt(seed: int, **options: list[Any]) -> list[Model]:
    """Models in which every option occurs, each as often as the others of its kind, together by chance."""
    count = 2 * max(len(values) for values in options.values())
    source = random.Random(seed)
    columns = {}
    for name, values in options.items():
        column = (values * count)[:count]
        source.shuffle(column)
        columns[name] = column
    return [Model(**{name: column[i] for name, column in columns.items()}) for i in range(count)]


GRID = dealt(
    11,
    hidden=[32, 33, 40, 72, 96, 100, 130],
    n_kv_head=[1, 2],
    group=[1, 3, 4, 7, 8],
    head_dim=[16, 32, 64, 80, 96, 112, 128, 256],
    inner=[16, 32, 48, 80, 112],
    vocab=[15, 16, 97, 160],
    activation=["silu", "gelu_tanh"],
    biases=[False, True],
    qk_norm=[False, True],
    windows=[(None,), (None, None), (1, None), (40,), (None, 300), (17, 255)],
    formats=[("int8",), ("int4",), ("int8", "int4"), ("int4", "int4", "int8")],
    block_size=[16, 32, 48, 64],
    kv=["bfloat16", "float32", "int8/16", "int8/16 rotated"],
    threads=[1, 2, 3],
)


def name_of(model: Model) -> str:
    return (
        f"hidden{model.hidden}-heads{model.n_kv_head}x{model.group}x{model.head_dim}-{'+'.join(model.formats)}"
        f"-{'+'.join(map(str, model.windows))}-blocks{model.block_size}-threads{model.threads}"
    )


def blocks_for(model: Model, *batches: Batch) -> int:
    needed = max(sum(-(-context // model.block_size) for _, context in batch) for batch in batches)
    return needed + 5


@pytest.mark.parametrize(("model", "seed"), zip(GRID, range(100), strict=False), ids=map(name_of, GRID))
def test_models_of_every_kind_in_batches_of_every_kind(decoder: Any, model: Model, seed: int) -> None:
    batches = random.Random(seed).sample(BATCHES, 3)
    check(Rig(model, decoder, blocks_for(model, *batches), seed), *batches)


@pytest.mark.parametrize("format", ["int8", "int4"])
def test_every_number_of_rows_of_a_sequence_and_of_sequences(decoder: Any, format: str) -> None:
    rig = Rig(Model(formats=(format,)), decoder)
    for rows in range(1, 17):
        check(rig, [(rows, rows)], [(rows, rows + 23)], [(1, 10 + i) for i in range(rows)])


@pytest.mark.parametrize("kv", KV)
@pytest.mark.parametrize("rows", [17, 31, 32, 33, 47, 64, 65, 130])
def test_chunks_of_prefill_alone_and_behind_a_prefix(decoder: Any, rows: int, kv: str) -> None:
    rig = Rig(Model(windows=(None, 70), kv=kv), decoder)
    check(rig, [(rows, rows)], [(rows, rows + 23), (1, 40)], [(rows, rows + 301)])


def test_a_step_of_many_rows_then_of_few(decoder: Any) -> None:
    """Buffers that have grown are as good as new ones."""
    check(Rig(Model(), decoder), [(3, 9)], [(300, 400), (1, 900)], [(1, 30)], [(40, 40)])


@pytest.mark.parametrize("block_size", [16, 32, 48, 256])
@pytest.mark.parametrize("kv", KV)
def test_last_blocks_that_are_full_or_hold_one_token(decoder: Any, block_size: int, kv: str) -> None:
    model = Model(block_size=block_size, kv=kv, windows=(None,))
    batch = [(1, max(1, times * block_size + extra)) for times in (1, 2, 3) for extra in (-1, 0, 1)]
    check(Rig(model, decoder, blocks_for(model, batch)), batch)


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 64, 255, 256, 257, 1000])
def test_a_window_sees_the_last_tokens_only(decoder: Any, window: int) -> None:
    model = Model(windows=(window,))
    check(Rig(model, decoder), [(1, 5), (1, window), (1, window + 1), (16, 300), (5, 60)])


@pytest.mark.parametrize("kv", KV)
@pytest.mark.parametrize(("rows", "window"), [(1, None), (1, 100), (40, None), (40, 100)])
def test_each_key_counts_if_and_only_if_it_is_in_sight(decoder: Any, rows: int, window: int | None, kv: str) -> None:
    """One token's values, at the ends of vectors, blocks, chunks and windows, drown out the others'."""
    rig, context = Rig(Model(windows=(window,), kv=kv), decoder, blocks=900), 600
    ends = {0, 1, 15, 16, 63, 64, 255, 256, 511, 512, context - rows - 1}
    ends |= {context - reach + offset for reach in (100, 100 + rows) for offset in (-2, -1, 0, 1)}
    loud = sorted(ends & set(range(context - rows)))
    work = rig.work([(rows, context)] * len(loud))
    for cache in rig.cache:
        slots = [places[position] for places, position in zip(work.places, loud, strict=True)]
        keys, values = cache.read(slots)
        cache.write(slots, keys, values * 500)
    ours = work.run(rig.decoder)
    expected, _ = rig.reference(work)
    assert (difference(ours, expected) < NOISE).all()


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
@pytest.mark.parametrize(
    "kv", ["int8/{0}", "int8/16 rotated", "int4/32", "int4/{0} rotated", "int8/32 rotated + int4/16"]
)
def test_every_head_size_in_groups(decoder: Any, head_dim: int, kv: str) -> None:
    rig = Rig(Model(head_dim=head_dim, kv=kv.format(head_dim)), decoder)
    check(rig, [(1, 1), (1, 77), (3, 20)], [(40, 60)])


def test_a_long_context(decoder: Any) -> None:
    model = Model(windows=(None, 700), group=1, n_kv_head=1)
    batch = [(1, 3000), (4, 1025)]
    check(Rig(model, decoder, blocks_for(model, batch)), batch)


@pytest.mark.parametrize("wanted", [[], [0], [4], [4, 1], [2, 3, 0]])
def test_only_the_logits_asked_for_in_the_order_asked(decoder: Any, wanted: list[int]) -> None:
    rig, batch = Rig(Model(windows=(None,)), decoder), [(3, 40), (1, 9), (1, 70)]
    if wanted:
        check(rig, batch, logit_rows=wanted)
    else:
        assert rig.work(batch, []).run(rig.decoder).shape == (0, rig.model.vocab)
    check(rig, batch)


@pytest.mark.parametrize("kv", KV)
def test_a_step_reads_what_steps_before_it_wrote(decoder: Any, kv: str) -> None:
    """Tokens of one sequence fed in pieces."""
    rig = Rig(Model(windows=(None, 20), kv=kv), decoder)
    whole = rig.work([(80, 80)])
    logits, at = [], 0
    for rows in (1, 3, 16, 1, 1, 7, 11, 2, 38):
        part = slice(at, at + rows)
        span = whole.spans[0]._replace(rows=rows, context=at + rows)
        places = [whole.places[0][: at + rows]]
        piece = Work(
            whole.hidden[part], whole.cos[part], whole.sin[part], whole.slots[part], [span], list(range(rows)), places
        )
        logits.append(piece.run(rig.decoder))
        at += rows
    expected, clear = rig.reference(whole)
    off = difference(torch.cat(logits), expected)
    assert at == 80 and (off < NOISE).all() and (off[clear] < rig.close).all()


@pytest.mark.parametrize("size", [1e-4, 1e4])
@pytest.mark.parametrize("format", ["int8", "int4"])
def test_scales_near_the_ends_of_float16(decoder: Any, size: float, format: str) -> None:
    """Weights so small that their scales have no exponent of their own any more, or near the largest."""
    check(Rig(replace(Model(), windows=(None,), head_scale=size, formats=(format,)), decoder), [(1, 20), (1, 3)])


def test_rows_of_zeros_give_zeros(decoder: Any) -> None:
    rig = Rig(Model(windows=(None,)), decoder)
    work = rig.work([(1, 1), (2, 2)])
    work.hidden.zero_()
    assert (work.run(rig.decoder) == 0).all()


def test_the_sequences_of_a_batch_do_not_see_each_other(decoder: Any) -> None:
    """One of NaN beside others leaves them as they are."""
    rig = Rig(Model(), decoder)
    work = rig.work([(1, 40), (2, 300), (20, 20)])
    alone = work.run(rig.decoder)
    work.hidden[1:3] = torch.nan
    beside = work.run(rig.decoder)
    assert beside[1:3].isnan().all()
    assert torch.equal(beside[[0, *range(3, 23)]], alone[[0, *range(3, 23)]])

"""Paged attention in Triton's interpreter against the reference: a sample of the grid that differs from run to run,
and the corners."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from attention_rig import Rig
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kernels.contract import LayerCache
from kernels.kv_format import Groups, KVFormat, Storage

GROUPS = (1, 3, 4, 7, 8)
HEAD_DIMS = (32, 64, 80, 96, 112, 128, 256)
BLOCK_SIZES = (16, 32, 64)


@pytest.fixture(autouse=True)
def fresh_data() -> None:
    print(f"torch.manual_seed({torch.seed()})")


def check(rig: Rig, *, spare_work: bool = False) -> None:
    tolerance = 2e-5 if rig.dtype == torch.float32 else 4e-3
    torch.testing.assert_close(rig.attend(spare_work=spare_work), rig.expected(), atol=tolerance, rtol=tolerance)


@st.composite
def storages(draw: st.DrawFn, head_dim: int, dtype: torch.dtype) -> Storage:
    if draw(st.booleans()):
        return dtype
    sizes = [size for size in (16, 32, 64, head_dim) if head_dim % size == 0]
    return Groups(draw(st.sampled_from((4, 8))), draw(st.sampled_from(sizes)), draw(st.booleans()))


@st.composite
def rigs(draw: st.DrawFn, most_rows: int) -> Rig:
    dtype = draw(st.sampled_from((torch.float32, torch.float16)))
    head_dim, block_size = draw(st.sampled_from(HEAD_DIMS)), draw(st.sampled_from(BLOCK_SIZES))
    whole = st.integers(1, 3).map(lambda blocks: blocks * block_size)
    contexts = st.lists(st.one_of(st.integers(1, 100), whole, st.just(1)), min_size=1, max_size=3)
    spans = [(draw(st.integers(1, min(most_rows, context))), context) for context in draw(contexts)]
    if most_rows > 1 and spans[0][0] == 1:
        spans[0] = (2, spans[0][1] + 1)
    keys = draw(storages(head_dim, dtype))
    # Both are floats of one dtype, or both are groups.
    values = draw(storages(head_dim, dtype).filter(lambda values: isinstance(values, Groups) == (keys != dtype)))
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    return Rig(
        spans,
        group=draw(st.sampled_from(GROUPS)),
        n_kv_head=draw(st.sampled_from((1, 2))),
        head_dim=head_dim,
        block_size=block_size,
        format=KVFormat(keys, values),
        dtype=dtype,
        window=draw(st.sampled_from((None, 1, 20, 64))),
        sm_count=draw(st.sampled_from((1, 8, 132))),
    )


# Not shrunk: that would take minutes here.
sampled = settings(deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])


@settings(sampled, max_examples=30)
@given(rigs(most_rows=1))
def test_decodes_of_any_kind(rig: Rig) -> None:
    check(rig)


@settings(sampled, max_examples=15)
@given(rigs(most_rows=40))
def test_prefill_chunks_of_any_kind_behind_cached_prefixes(rig: Rig) -> None:
    check(rig)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_head_size_and_group(head_dim: int) -> None:
    i = HEAD_DIMS.index(head_dim)
    sizes = {"group": GROUPS[i % 5], "block_size": BLOCK_SIZES[i % 3], "head_dim": head_dim}
    check(Rig([(1, 70), (1, 1), (1, 64)], **sizes))
    int4 = KVFormat(Groups(8, head_dim, rotated=True), Groups(4, head_dim, rotated=True))
    check(Rig([(1, 70), (1, 16)], **sizes, format=int4, dtype=torch.float16))
    check(Rig([(9, 30), (2, 2)], **sizes))


def test_one_key_value_head_for_more_query_heads_than_a_tile_has_rows() -> None:
    check(Rig([(1, 40), (1, 3)], group=20, n_kv_head=1))
    check(Rig([(2, 30)], group=71, n_kv_head=1))


def test_decodes_from_one_token_to_many_blocks() -> None:
    check(Rig([(1, length) for length in (1, 2, 15, 16, 17, 100, 1000)], n_kv_head=1))


def test_a_tile_split_over_many_programs_is_put_together_again() -> None:
    for span in ((1, 1500), (5, 1000)):
        check(Rig([span], n_kv_head=1, sm_count=132))


def test_a_split_whose_keys_come_after_some_of_its_queries_adds_nothing_to_those() -> None:
    check(Rig([(60, 60)], group=1, n_kv_head=1, sm_count=132))


@pytest.mark.parametrize("spans", [[(1, 200), (1, 5)], [(30, 200), (4, 5)]], ids=["decodes", "prefills"])
def test_rows_of_zeros_are_no_work(spans: list[tuple[int, int]]) -> None:
    check(Rig(spans), spare_work=True)


def test_scores_of_any_size_stay_finite() -> None:
    for spans in ([(1, 50)], [(20, 50)]):
        rig = Rig(spans)
        rig.q *= 1e4
        assert rig.attend().isfinite().all()


@pytest.mark.parametrize("spans", [[(1, 50)], [(20, 50)]], ids=["decodes", "prefills"])
def test_a_soft_cap_bounds_the_scores(spans: list[tuple[int, int]]) -> None:
    rig = Rig(spans, group=2, n_kv_head=1)
    [(rows, context)] = spans
    keys, values = (_tokens(rig, kind)[:context] for kind in (0, 1))
    # Far enough from zero for the cap to matter.
    rig.q *= 5
    scores = torch.einsum("thd,sd->hts", rig.q, keys) / math.sqrt(rig.head_dim)
    hidden = torch.ones(rows, context).triu(context - rows + 1).bool()
    weights = (3 * (scores / 3).tanh()).masked_fill(hidden, -math.inf).softmax(-1)
    expected = torch.einsum("hts,sd->thd", weights, values).flatten(1)
    torch.testing.assert_close(rig.attend(softcap=3), expected, atol=2e-5, rtol=2e-5)


def _tokens(rig: Rig, kind: int) -> torch.Tensor:
    """The keys or values of the first sequence of one key/value head, [S, D]."""
    blocks = rig.layer[kind].blocks[rig.tables[0].long()].view(torch.float32)
    return blocks.view(-1, rig.head_dim)


@pytest.mark.parametrize(
    "format",
    [KVFormat(torch.float16, torch.float16), KVFormat(Groups(8, 16), Groups(4, 32))],
    ids=str,
)
def test_blocks_beyond_two_to_the_31_elements_are_found(format: KVFormat) -> None:
    rig = Rig([(1, 40)], n_kv_head=1, format=format, dtype=torch.float16)
    expected = rig.expected()
    far = 2**31 // (rig.layer.keys.blocks.shape[1] // 2)
    # Of this much memory only the pages that are touched exist; an address that wraps ends the process.
    pools = [torch.empty(far + len(plane.blocks), plane.blocks.shape[1], dtype=torch.uint8) for plane in rig.layer]
    for pool, plane in zip(pools, rig.layer, strict=True):
        pool[far:] = plane.blocks
    rig.layer = LayerCache(*(replace(plane, blocks=pool) for plane, pool in zip(rig.layer, pools, strict=True)))
    rig.tables += far
    torch.testing.assert_close(rig.attend(), expected, atol=4e-3, rtol=4e-3)

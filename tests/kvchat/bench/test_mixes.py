"""Loads: when requests arrive, what they are, and what they have in common."""

from __future__ import annotations

import random
from itertools import islice, pairwise
from os.path import commonprefix

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.bench.latency import percentile
from kvchat.bench.mixes import MIXES, SIZED_FOR, Load, poisson

VOCAB = 300
LOADS = st.builds(
    Load,
    mix=st.sampled_from([MIXES["chat"], MIXES["documents"], MIXES["blend"]]),
    rate=st.floats(0.1, 100),
    requests=st.integers(1, 12),
    seconds=st.none() | st.floats(0.1, 10),
    scale=st.floats(0.1, 1),
)
SEEDS = st.text(max_size=8)


@given(LOADS, SEEDS, st.integers(128, 2 * SIZED_FOR))
def test_requests_arrive_in_order_and_fit_the_context(load: Load, seed: str, context: int) -> None:
    arrivals = load.arrivals(context, VOCAB, seed)
    assert all(before.at_s <= after.at_s for before, after in pairwise(arrivals))
    for arrival in arrivals:
        assert 0 <= arrival.at_s <= (load.seconds or float("inf"))
        prompt, sampling = arrival.request.prompt_ids, arrival.request.sampling
        assert len(prompt) + sampling.max_tokens < context
        assert sampling.max_tokens >= 2, "one token has no time per token"
        assert all(0 <= token < VOCAB for token in prompt)


@given(LOADS, SEEDS)
def test_the_same_seed_gives_the_same_arrivals(load: Load, seed: str) -> None:
    assert load.arrivals(600, VOCAB, seed) == load.arrivals(600, VOCAB, seed)


@given(st.floats(0.01, 1000), st.integers(0, 5))
def test_arrivals_are_as_frequent_as_asked_and_as_uneven_as_chance(rate: float, seed: int) -> None:
    times = list(islice(poisson(rate, random.Random(seed)), 2000))
    gaps = [after - before for before, after in pairwise(times)]
    average = sum(gaps) / len(gaps)
    assert average == pytest.approx(1 / rate, rel=0.15)
    short = sum(gap < average for gap in gaps) / len(gaps)
    assert short == pytest.approx(0.632, abs=0.05), "1 - 1/e of the gaps are shorter than the mean"


def test_so_many_requests_arrive_or_those_of_so_many_seconds() -> None:
    assert len(Load.of("chat", requests=7).arrivals(4096, VOCAB, "a")) == 7
    timed = Load.of("chat", rate=50, seconds=2.0).arrivals(4096, VOCAB, "a")
    assert 60 < len(timed) < 140
    assert timed[-1].at_s < 2.0


def test_questions_begin_with_one_persona() -> None:
    prompts = [arrival.request.prompt_ids for arrival in Load.of("chat", requests=5).arrivals(4096, VOCAB, "a")]
    assert len(commonprefix(prompts)) == 300


def test_three_questions_are_asked_about_each_document() -> None:
    prompts = [arrival.request.prompt_ids for arrival in Load.of("documents", requests=6).arrivals(4096, VOCAB, "a")]
    for same in (prompts[:3], prompts[3:]):
        assert 1200 <= len(commonprefix(same)) <= 3000
    assert len(commonprefix(prompts)) < 4


def test_the_writer_is_one_long_text_from_the_beginning() -> None:
    [arrival] = Load.of("writer").arrivals(8192, VOCAB, "a")
    assert arrival.at_s == 0
    assert arrival.request.sampling.max_tokens == 1200


def test_the_blend_is_a_long_text_with_questions_and_documents_beside_it() -> None:
    text, *others = Load.of("blend").arrivals(8192, VOCAB, "a")
    assert (text.at_s, text.request.sampling.max_tokens) == (0, 1200)
    lengths = [len(other.request.prompt_ids) for other in others]
    assert len(lengths) == 40
    assert 4 < sum(length > 1000 for length in lengths) < 20


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) <= share * len(values) + 1e-6

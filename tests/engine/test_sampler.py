from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import SamplingParams
from engine.errors import EngineError, InvalidRequest
from engine.sampler import SequenceSampler, sample

VOCAB = 200
ROUNDING = 1e-5
"""How close to a boundary float32 may decide otherwise than the specification."""


def make(
    prompt_ids: Iterable[int] = (), eos_ids: Iterable[int] = (), vocab: int = VOCAB, **params: Any
) -> SequenceSampler:
    return SequenceSampler(SamplingParams(**params), tuple(prompt_ids), tuple(eos_ids), vocab)


def greedy_choice(logits: list[float], sampler: SequenceSampler) -> int:
    [token] = sample(torch.tensor([logits]), [sampler])
    return token


def edited(
    logits: np.ndarray, p: SamplingParams, prompt: list[int], generated: list[int], eos: list[int]
) -> np.ndarray:
    """The specification of everything before the temperature, token by token."""
    logits = logits.copy()
    for token in range(len(logits)):
        logits[token] += p.logit_bias.get(token, 0)
        if token in prompt or token in generated:
            factor = p.repetition_penalty
            logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
        if token in generated:
            logits[token] -= p.presence_penalty + p.frequency_penalty * generated.count(token)
        if p.ignore_eos and token in eos:
            logits[token] = -np.inf
    return logits


def distribution(logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """The specification of temperature, top_k, top_p and min_p, one after the other, by sorting."""
    scaled = (logits - logits.max()) / temperature
    if top_k:
        scaled[scaled < np.sort(scaled)[::-1][min(top_k, len(scaled)) - 1]] = -np.inf
    probs = np.exp(scaled) / np.exp(scaled).sum()
    floor = min_p * probs.max()
    if top_p < 1:
        descending = np.sort(probs)[::-1]
        last = int((np.cumsum(descending) < top_p).sum())
        floor = max(floor, descending[min(last, len(probs) - 1)])
    probs[probs < floor] = 0
    return probs / probs.sum()


LOGITS = st.lists(st.integers(-12, 12).map(lambda n: n / 2), min_size=VOCAB, max_size=VOCAB).map(np.array)
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=12)
PARAMS = st.builds(  # powers of two where rounding would make or break ties
    SamplingParams,
    temperature=st.sampled_from([0.01, 0.5, 1.0, 3.0, 20.0]),
    top_k=st.sampled_from([0, 1, 3, 50, 1000]),
    top_p=st.sampled_from([0.01, 0.3, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([0.5, 1.0, 2.0]),
    presence_penalty=st.sampled_from([-2.0, 0.0, 1.5]),
    frequency_penalty=st.sampled_from([-0.5, 0.0, 0.25]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-100.0, -1.5, 4.0]), max_size=4),
    ignore_eos=st.booleans(),
    seed=st.integers(0, 2**32),
)


@settings(deadline=None)
@given(logits=LOGITS, prompt=IDS, generated=IDS, eos=IDS, params=PARAMS)
def test_a_draw_is_the_one_that_the_specification_makes(
    logits: np.ndarray, prompt: list[int], generated: list[int], eos: list[int], params: SamplingParams
) -> None:
    sampler = SequenceSampler(params, prompt, eos, VOCAB)
    for token in generated:
        sampler.note(token)
    [drawn] = sample(torch.tensor(logits, dtype=torch.float32)[None], [sampler])

    number = random.Random(params.seed).random()
    after = edited(logits, params, prompt, generated, eos)
    allowed = set()
    for shift, top_p_factor, min_p_factor in product((0, -ROUNDING, ROUNDING), repeat=3):
        top_p = params.top_p * (1 + top_p_factor) if params.top_p < 1 else 1
        min_p = min(1, params.min_p * (1 + min_p_factor))
        probs = distribution(after, params.temperature, params.top_k, top_p, min_p)
        allowed.add(int(np.searchsorted(np.cumsum(probs), np.clip(number + shift, 0, 1 - ROUNDING), side="right")))
    assert drawn in allowed


@settings(deadline=None)
@given(logits=LOGITS, prompt=IDS, generated=IDS, eos=IDS, params=PARAMS)
def test_temperature_0_takes_the_likeliest_token(
    logits: np.ndarray, prompt: list[int], generated: list[int], eos: list[int], params: SamplingParams
) -> None:
    sampler = SequenceSampler(
        SamplingParams(
            temperature=0,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            logit_bias=params.logit_bias,
            ignore_eos=params.ignore_eos,
        ),
        prompt,
        eos,
        VOCAB,
    )
    for token in generated:
        sampler.note(token)
    [token] = sample(torch.tensor(logits, dtype=torch.float32)[None], [sampler])
    after = edited(logits, sampler.params, prompt, generated, eos)
    assert after[token] == after.max()


@pytest.mark.parametrize(
    "filters",
    [{}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 30, "top_p": 0.9, "min_p": 0.05}],
    ids=str,
)
def test_many_draws_have_the_specified_frequencies(filters: dict[str, Any]) -> None:
    draws, logits = 20_000, torch.randn(VOCAB, generator=torch.Generator().manual_seed(1)) * 2
    params = SamplingParams(**{"temperature": 0.8, "top_p": 1.0, "seed": 7} | filters)
    sampler = SequenceSampler(params, (), (), VOCAB)
    counts = Counter(sample(logits.expand(draws, -1), [sampler] * draws))
    probs = distribution(logits.double().numpy(), params.temperature, params.top_k, params.top_p, params.min_p)
    assert counts.keys() <= set(np.flatnonzero(probs))
    often = np.flatnonzero(probs * draws >= 5)
    chi_square = sum((counts[int(i)] - probs[i] * draws) ** 2 / (probs[i] * draws) for i in often)
    assert chi_square < len(often) + 4 * np.sqrt(2 * len(often))


@pytest.mark.filterwarnings("error")
def test_any_temperature_is_computed() -> None:
    logits = torch.tensor([[1.0, 30.0, -5.0, 2.0]]).expand(200, -1)
    sampler = make(eos_ids=[2], temperature=1e308, top_p=1.0, seed=1, vocab=4, ignore_eos=True)
    assert set(sample(logits, [sampler] * 200)) == {0, 1, 3}
    assert make(temperature=1e308).next_draw().temperature < float("inf")


def test_a_nucleus_of_thousands_of_tokens_is_exact() -> None:
    vocab, draws = 5000, 3000
    logits = torch.linspace(0, 1, vocab)
    sampler = make(temperature=1.0, top_p=0.9, seed=3, vocab=vocab)
    drawn = sample(logits.expand(draws, -1), [sampler] * draws)
    probs = distribution(logits.double().numpy(), 1.0, 0, 0.9, 0)
    lowest = int(np.flatnonzero(probs)[0])
    assert lowest <= min(drawn) < lowest + 20


def test_a_seed_gives_the_same_tokens_alone_and_in_any_batch() -> None:
    generator = torch.Generator().manual_seed(5)
    mine: dict[str, Any] = {"temperature": 0.9, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.2, "seed": 11}
    alone, first, last = make(**mine), make(**mine), make(**mine)
    others = [
        make(temperature=0),
        make(temperature=20.0, top_p=0.999, seed=1),
        make(temperature=1.0, min_p=0.3, frequency_penalty=0.5, seed=2),
    ]
    for _ in range(50):
        logits, noise = (torch.randn(n, VOCAB, generator=generator) * 3 for n in (1, 3))
        [expected] = sample(logits, [alone])
        assert sample(torch.cat([logits, noise]), [first, *others])[0] == expected
        assert sample(torch.cat([noise[:2], logits]), [*others[:2], last])[-1] == expected


def test_without_a_seed_two_requests_differ() -> None:
    flat = torch.zeros(20, VOCAB)
    one, other = make(temperature=1.0, top_p=1.0), make(temperature=1.0, top_p=1.0)
    assert sample(flat, [one] * 20) != sample(flat, [other] * 20)


def test_the_models_logits_are_left_as_they_are() -> None:
    logits = torch.randn(2, VOCAB)
    before = logits.clone()
    sample(
        logits, [make(logit_bias={3: 5.0}, repetition_penalty=1.5, seed=1), make(temperature=0, presence_penalty=1.0)]
    )
    assert torch.equal(logits, before)


def test_the_repetition_penalty_counts_the_prompt_and_the_presence_penalty_does_not() -> None:
    logits = [1.0, 1.5, 0.0]
    assert greedy_choice(logits, make([1], vocab=3, temperature=0, repetition_penalty=2.0)) == 0
    assert greedy_choice(logits, make([1], vocab=3, temperature=0, presence_penalty=2.0)) == 1


def test_penalties_count_what_was_sampled() -> None:
    sampler = make(vocab=2, temperature=0, frequency_penalty=0.5)
    assert [greedy_choice([1.2, 0.0], sampler) for _ in range(5)] == [0, 0, 0, 1, 0]


def test_ignored_end_tokens_are_never_chosen() -> None:
    sampler = make(eos_ids=[0, 2, 999], vocab=3, temperature=1.0, ignore_eos=True, logit_bias={2: 100.0})
    assert {greedy_choice([9.0, 0.0, 9.0], sampler) for _ in range(50)} == {1}
    assert greedy_choice([9.0, 0.0, 9.0], make(eos_ids=[0], vocab=3, temperature=0)) == 0


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1e-6, 1e-4])
def test_temperatures_near_0_do_not_overflow(temperature: float) -> None:
    assert greedy_choice([1e4, 2e4, -1e4], make(vocab=3, temperature=temperature, seed=1)) == 1


@pytest.mark.parametrize("token", [-1, VOCAB, 10**9])
def test_a_bias_of_a_token_outside_the_vocabulary_is_refused_by_its_id(token: int) -> None:
    with pytest.raises(InvalidRequest, match=f"token {token};"):
        make(logit_bias={3: 1.0, token: 1.0})


@pytest.mark.parametrize("bias", [101.0, -101.0, float("inf"), float("nan")])
def test_a_bias_out_of_range_is_refused(bias: float) -> None:
    with pytest.raises(InvalidRequest, match="logit_bias .*(token 3 must be between -100 and 100|finite numbers)"):
        make(logit_bias={3: bias})


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_an_error(broken: float, temperature: float) -> None:
    logits = torch.zeros(2, VOCAB)
    logits[1, 7] = broken
    with pytest.raises(EngineError, match="not numbers"):
        sample(logits, [make(temperature=temperature), make(temperature=temperature)])

"""Logits to the next token of each sequence in a batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.api import SamplingParams
from engine.errors import EngineError, InvalidRequest
from kernels.contract import Draw

HOTTEST = float(np.finfo(np.float32).max)
"""The distribution of a temperature above this is as even as that of it."""
GREEDY_BELOW = 1e-5
"""A temperature under this is greedy: the outcome is the same, and nothing overflows."""
MAX_BIAS = 100.0
NOT_NUMBERS = "the model computed logits that are not numbers; try dtype = float32"

DrawTokens = Callable[[Tensor, Sequence[Draw]], list[int]]
"""See `kernels.contract.Kernels.draw`."""


class SequenceSampler:
    """How one sequence chooses its tokens, with what it must remember for that: its random stream, and the tokens that
    penalties count. Each `choose` takes one number from the stream and notes one token, so that a sequence goes on
    unchanged after a preemption, and depends on no other sequence.

    Raises InvalidRequest on a logit bias beyond +-100 or of a token outside the vocabulary.
    """

    def __init__(
        self, params: SamplingParams, prompt_ids: Iterable[int], eos_ids: Collection[int], vocab_size: int
    ) -> None:
        for token, bias in params.logit_bias.items():
            if not 0 <= token < vocab_size:
                raise InvalidRequest(f"logit_bias names token {token}; the vocabulary has 0 to {vocab_size - 1}")
            if not -MAX_BIAS <= bias <= MAX_BIAS:
                raise InvalidRequest(f"logit_bias of token {token} must be between -100 and 100, not {bias}")
        self.params = params
        self._random = random.Random(params.seed)
        self._counted = params.presence_penalty != 0 or params.frequency_penalty != 0
        self._repelled = params.repetition_penalty != 1
        self._prompt_ids = _ids(set(prompt_ids) if self._repelled else ())
        self.banned = [i for i in eos_ids if params.ignore_eos and i < vocab_size]
        self._generated: Counter[int] = Counter()
        self.is_simple = not (params.logit_bias or self._counted or self._repelled)
        """Whether the distribution depends on the logits alone, `banned` tokens apart."""

    def choose(self, logits: np.ndarray) -> int:
        """The next token, by float32 [vocab], which is left as it is.

        Applied are, in this order: logit bias, repetition penalty, presence and frequency penalty, ignore_eos,
        temperature, top_k, top_p, min_p. Raises EngineError when the logits have no finite maximum.
        """
        if self.banned or not self.is_simple:
            logits = self._edited(logits)
        token = int(logits.argmax())
        if not np.isfinite(logits[token]):
            raise EngineError(NOT_NUMBERS)
        number = self._random.random()
        if self.params.temperature >= GREEDY_BELOW:
            token = _draw(logits - logits[token], self.params, number)
        self.note(token)
        return token

    def next_draw(self) -> Draw:
        """What `choose` would do, for kernels that draw. Takes one number from the stream; the token is to be noted."""
        p = self.params
        temperature = min(p.temperature, HOTTEST) if p.temperature >= GREEDY_BELOW else 0.0
        return Draw(temperature, p.top_k, p.top_p, p.min_p, self._random.random())

    def note(self, token: int) -> None:
        self._generated[token] += 1

    def skip(self, tokens: Iterable[int]) -> None:
        """Go on as if these had been chosen here."""
        for token in tokens:
            self._random.random()
            self.note(token)

    def _edited(self, logits: np.ndarray) -> np.ndarray:
        """What this request adds to or takes from the model's opinion."""
        p, logits = self.params, logits.copy()
        for token, bias in p.logit_bias.items():
            logits[token] += bias
        if self._repelled:  # as in CTRL (Keskar et al. 2019), on the prompt too
            seen = np.union1d(self._prompt_ids, _ids(self._generated))
            scores = logits[seen]
            logits[seen] = np.where(scores > 0, scores / p.repetition_penalty, scores * p.repetition_penalty)
        if self._counted:  # as in OpenAI's API, on what was generated
            counts = np.fromiter(self._generated.values(), np.float32)
            logits[_ids(self._generated)] -= p.presence_penalty + p.frequency_penalty * counts
        logits[self.banned] = -np.inf
        return logits


def _ids(tokens: Iterable[int]) -> np.ndarray:
    return np.fromiter(tokens, np.int64)


def sample(logits: Tensor, samplers: Sequence[SequenceSampler], draw: DrawTokens | None = None) -> list[int]:
    """The next token of each sequence; `logits` is float32 [len(samplers), vocab]. Raises EngineError when they have no
    finite maximum.

    Where the kernels can `draw`, they do for sequences without logit bias and penalties, and may change these logits;
    those of the others come to the host.
    """
    if draw is None:
        return _sample_on_host(logits, samplers)
    tokens: dict[int, int] = {}
    for simple in (True, False):
        rows = [row for row, sampler in enumerate(samplers) if sampler.is_simple == simple]
        if rows:
            some = logits if len(rows) == len(samplers) else logits[rows]
            chosen = [samplers[row] for row in rows]
            drawn = _sample_by(draw, some, chosen) if simple else _sample_on_host(some, chosen)
            tokens |= zip(rows, drawn, strict=True)
    return [tokens[row] for row in range(len(samplers))]


def _sample_on_host(logits: Tensor, samplers: Sequence[SequenceSampler]) -> list[int]:
    rows = logits.numpy(force=True)
    return [sampler.choose(row) for sampler, row in zip(samplers, rows, strict=True)]


@torch.inference_mode()
def _sample_by(draw: DrawTokens, logits: Tensor, samplers: Sequence[SequenceSampler]) -> list[int]:
    banned = [(row, token) for row, sampler in enumerate(samplers) for token in sampler.banned]
    if banned:
        rows, columns = zip(*banned, strict=True)
        logits[rows, columns] = -torch.inf
    tokens = draw(logits, [sampler.next_draw() for sampler in samplers])
    if min(tokens) < 0:
        raise EngineError(NOT_NUMBERS)
    for sampler, token in zip(samplers, tokens, strict=True):
        sampler.note(token)
    return tokens


def _draw(logits: np.ndarray, params: SamplingParams, number: float) -> int:
    """The token at which the distribution of float32 [vocab], with a maximum of 0, passes `number` in [0, 1).

    Each filter is a floor under the weights, so that tokens as likely as the last one kept are kept too, and the
    cumulative distribution runs over the kept ones by id: how a sort orders equals has no influence.
    """
    weights = np.exp(logits / np.float32(min(params.temperature, HOTTEST)))
    vocab, floor = len(weights), np.float32(params.min_p)
    likely = weights
    if 0 < params.top_k < vocab:
        kth = np.partition(weights, -params.top_k)[-params.top_k]
        floor, likely = max(floor, kth), weights[weights >= kth]
    if params.top_p < 1:
        total = likely.sum(dtype=np.float64)
        # All tokens under this weigh less together than what top_p leaves out: they need no sorting.
        least = (1 - params.top_p) * total / vocab
        descending = np.sort(likely[likely >= least])[::-1]
        last = np.searchsorted(np.cumsum(descending, dtype=np.float64), params.top_p * total)
        floor = max(floor, descending[min(last, len(descending) - 1)])
    ids = np.flatnonzero(weights >= floor)
    mass = np.cumsum(weights[ids], dtype=np.float64)
    # In float64 number * total < total for every number < 1, so this always ends on a token that was kept.
    return int(ids[np.searchsorted(mass, number * mass[-1], side="right")])

"""Logits to the next token of each sequence in a batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import torch
from torch import Tensor

from engine.api import SamplingParams
from engine.errors import EngineError, InvalidRequest

GREEDY_BELOW = 1e-5
"""A temperature under this is greedy: the outcome is the same, and nothing overflows."""
MAX_BIAS = 100.0
FIRST_CANDIDATES = 64
"""How many of the likeliest tokens are sorted first for top_p; eight times more whenever they do not suffice."""


class SequenceSampler:
    """How one sequence chooses its tokens, with what it must remember for that: its random stream, and the tokens that
    penalties count. Each `sample` takes one number from the stream and notes one token, so that a sequence goes on
    unchanged after a preemption.

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
        self.greedy = params.temperature < GREEDY_BELOW
        self._random = random.Random(params.seed)
        self._counted = params.presence_penalty != 0 or params.frequency_penalty != 0
        self._repelled = params.repetition_penalty != 1
        self._prompt_ids = torch.tensor(sorted(set(prompt_ids)) if self._repelled else [], dtype=torch.long)
        self._banned = torch.tensor([i for i in eos_ids if params.ignore_eos and i < vocab_size], dtype=torch.long)
        self._generated: Counter[int] = Counter()
        self.edits = bool(params.logit_bias) or self._counted or self._repelled or params.ignore_eos
        """Whether `edit` changes anything."""

    def edit(self, logits: Tensor) -> None:
        """Apply in place, to float32 [vocab], what this request adds to or takes from the model's opinion."""
        p, device = self.params, logits.device
        if p.logit_bias:
            logits[list(p.logit_bias)] += torch.tensor(list(p.logit_bias.values()), device=device)
        generated = torch.tensor(list(self._generated), dtype=torch.long, device=device)
        if self._repelled:  # as in CTRL (Keskar et al. 2019), on the prompt too
            seen = torch.cat([self._prompt_ids.to(device), generated])
            scores = logits[seen]
            logits[seen] = torch.where(scores > 0, scores / p.repetition_penalty, scores * p.repetition_penalty)
        if self._counted:  # as in OpenAI's API, on what was generated
            counts = torch.tensor(list(self._generated.values()), dtype=logits.dtype, device=device)
            logits[generated] -= p.presence_penalty + p.frequency_penalty * counts
        logits[self._banned.to(device)] = -torch.inf

    def draw(self) -> float:
        """The next number of this sequence's random stream, in [0, 1)."""
        return self._random.random()

    def note(self, token: int) -> None:
        self._generated[token] += 1


@torch.inference_mode()
def sample(logits: Tensor, samplers: Sequence[SequenceSampler]) -> list[int]:
    """The next token of each sequence; `logits` is float32 [len(samplers), vocab] and is left as it is.

    Applied are, in this order: logit bias, repetition penalty, presence and frequency penalty, ignore_eos, temperature,
    top_k, top_p, min_p. A row's token depends on that row and its sampler alone: one random number looks up the
    cumulative distribution. Raises EngineError when a row has no finite maximum.
    """
    if any(sampler.edits for sampler in samplers):
        logits = logits.clone()
        for row, sampler in zip(logits, samplers, strict=True):
            sampler.edit(row)
    best, tokens = logits.max(-1)
    if not best.isfinite().all():
        raise EngineError("the model computed logits that are not numbers; try dtype = float32")
    drawn = [i for i, sampler in enumerate(samplers) if not sampler.greedy]
    if drawn:
        tokens[drawn] = _draw(logits[drawn] - best[drawn, None], [samplers[i] for i in drawn])
    chosen = tokens.tolist()
    for sampler, token in zip(samplers, chosen, strict=True):
        sampler.note(token)
    return chosen


def _draw(logits: Tensor, samplers: Sequence[SequenceSampler]) -> Tensor:
    """Draw from float32 [n, vocab] with row maxima of 0; returns int64 [n].

    Each filter is a floor under the probabilities, so that tokens as likely as the last one kept are kept too and
    the result does not depend on how a sort orders equals.
    """

    def column(values: Iterable[float]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.float64, device=logits.device)[:, None]

    params = [sampler.params for sampler in samplers]
    logits = logits / column(p.temperature for p in params).float()
    if any(p.top_k for p in params):
        logits = _keep_top_k(logits, [p.top_k for p in params])
    probs = logits.softmax(-1)
    floor = column(p.min_p for p in params) * probs.amax(-1, keepdim=True)
    if any(p.top_p < 1 for p in params):
        floor = floor.maximum(_nucleus_floor(probs, column(p.top_p for p in params)))
    mass = probs.where(probs >= floor, 0).cumsum(-1, dtype=torch.float64)
    # In float64 u * total < total for every u < 1, so the search always ends on a token that was kept.
    target = column(sampler.draw() for sampler in samplers) * mass[:, -1:]
    return torch.searchsorted(mass, target, right=True)[:, 0]


def _keep_top_k(logits: Tensor, top_k: Sequence[int]) -> Tensor:
    """-inf for all logits below the k-th largest of their row; 0 keeps the row."""
    k = torch.tensor(top_k, device=logits.device)[:, None].clamp_max(logits.shape[-1])
    largest = logits.topk(int(k.max())).values
    floor = largest.gather(-1, (k - 1).clamp_min(0)).masked_fill(k == 0, -torch.inf)
    return logits.masked_fill(logits < floor, -torch.inf)


def _nucleus_floor(probs: Tensor, top_p: Tensor) -> Tensor:
    """The smallest probability in the smallest set of likeliest tokens that holds `top_p`, [n, 1]; 0 for top_p 1."""
    vocab = probs.shape[-1]
    wanted = top_p.masked_fill(top_p >= 1, 0)
    k = min(FIRST_CANDIDATES, vocab)
    while True:
        largest = probs.topk(k).values
        mass = largest.cumsum(-1, dtype=torch.float64)
        if k == vocab or bool((mass[:, -1:] >= wanted).all()):
            break
        k = min(8 * k, vocab)
    last = (mass < wanted).sum(-1, keepdim=True).clamp_max(k - 1)
    return largest.gather(-1, last).masked_fill(top_p >= 1, 0)

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
"""How many of the likeliest tokens are looked at first; eight times more whenever they do not suffice."""


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
    best = logits.amax(-1, keepdim=True)
    if not best.isfinite().all():
        raise EngineError("the model computed logits that are not numbers; try dtype = float32")
    drawn = [i for i, sampler in enumerate(samplers) if not sampler.greedy]
    tokens = logits.argmax(-1) if len(drawn) < len(samplers) else logits.new_empty(len(samplers), dtype=torch.long)
    if logits.is_cpu:  # a row fits into a core's cache, a batch does not
        for i in drawn:
            tokens[i : i + 1] = _draw(logits[i : i + 1] - best[i], [samplers[i]])
    elif drawn:
        tokens[drawn] = _draw(logits[drawn] - best[drawn], [samplers[i] for i in drawn])
    chosen = tokens.tolist()
    for sampler, token in zip(samplers, chosen, strict=True):
        sampler.note(token)
    return chosen


def _draw(logits: Tensor, samplers: Sequence[SequenceSampler]) -> Tensor:
    """Draw from float32 [n, vocab] with row maxima of 0; returns int64 [n].

    Each filter is a floor under the probabilities, so that tokens as likely as the last one kept are kept too, and
    the draw runs over the kept ones by id: how a sort orders equals has no influence.
    """
    params = [sampler.params for sampler in samplers]
    probs = (logits / _column((p.temperature for p in params), logits).float()).softmax(-1)
    kept, ids = _filter(probs, params)
    mass = kept.cumsum(-1, dtype=torch.float64)
    # In float64 u * total < total for every u < 1, so the search always ends on a token that was kept.
    target = _column((sampler.draw() for sampler in samplers), logits) * mass[:, -1:]
    return ids.gather(-1, torch.searchsorted(mass, target, right=True))[:, 0]


def _filter(probs: Tensor, params: Sequence[SamplingParams]) -> tuple[Tensor, Tensor]:
    """Probabilities, 0 for what top_k, top_p and min_p remove, and their token ids in ascending order: both [n, k],
    with a k that is large enough for all tokens kept."""
    vocab = probs.shape[-1]
    if all(p.top_k == 0 and p.top_p == 1 and p.min_p == 0 for p in params):
        return probs, torch.arange(vocab, device=probs.device).expand_as(probs)
    candidates = min(vocab, max(FIRST_CANDIDATES, 1 + max(p.top_k for p in params)))
    while True:
        likely, ids = probs.topk(candidates)
        floor = _floor(likely, params)
        if candidates == vocab or bool((likely[:, -1:] < floor).all()):
            break
        candidates = min(8 * candidates, vocab)
    ids, order = ids.sort(-1)
    return likely.where(likely >= floor, 0).gather(-1, order), ids


def _floor(likely: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """The least probability that a token of each row must have, [n, 1], as far as the likeliest tokens, descending in
    [n, k], can tell; less where they do not suffice."""
    width = likely.shape[-1]
    floor = _column((p.min_p for p in params), likely).float() * likely[:, :1]
    total = torch.ones_like(floor)
    if any(p.top_k for p in params):
        top_k = _column((p.top_k for p in params), likely).long()
        kth = likely.gather(-1, (top_k - 1).clamp(0, width - 1)).masked_fill(top_k == 0, 0)
        total = likely.where(likely >= kth, 0).sum(-1, keepdim=True).masked_fill(top_k == 0, 1)
        floor = floor.maximum(kth)
    if any(p.top_p < 1 for p in params):
        top_p = _column((p.top_p for p in params), likely)
        before = (likely.cumsum(-1, dtype=torch.float64) < top_p * total).sum(-1, keepdim=True)
        last = likely.gather(-1, before.clamp_max(width - 1))
        floor = floor.maximum(last.masked_fill((before == width) | (top_p == 1), 0))
    return floor


def _column(values: Iterable[float], like: Tensor) -> Tensor:
    """float64 [n, 1] on the device of `like`."""
    return torch.tensor(list(values), dtype=torch.float64, device=like.device)[:, None]

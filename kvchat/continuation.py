"""What a reply cost that was made by more than one request."""

from __future__ import annotations

from engine.api import Metrics


def continued(first: Metrics, then: Metrics) -> Metrics:
    """The metrics of a reply that stopped after `first` and went on as `then`.

    Times and tokens are those of both parts, and the pause between them is nobody's; the time to the first token and
    the prompt are those of `first`, and the time per token is that between the tokens of each part.
    """
    if not first.completion_tokens:
        return then
    steps = max(0, first.completion_tokens - 1) + max(0, then.completion_tokens - 1)
    decoding_s = sum((part.tpot_s or 0.0) * max(0, part.completion_tokens - 1) for part in (first, then))
    tpot = decoding_s / steps if steps else None
    return Metrics(
        queue_s=first.queue_s + then.queue_s,
        ttft_s=first.ttft_s,
        tpot_s=tpot,
        prefill_s=first.prefill_s + then.prefill_s,
        decode_s=first.decode_s + then.decode_s,
        preempted_s=first.preempted_s + then.preempted_s,
        e2e_s=first.e2e_s + then.e2e_s,
        tokens_per_s=1 / tpot if tpot else None,
        prompt_tokens=first.prompt_tokens,
        cached_tokens=first.cached_tokens,
        evicted_tokens=first.evicted_tokens,
        completion_tokens=first.completion_tokens + then.completion_tokens,
        preemptions=first.preemptions + then.preemptions,
    )

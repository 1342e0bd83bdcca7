"""The same requests in the same memory: a stretch for the longest of them reserved for each, or blocks as they grow."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from engine.api import GenerationRequest, SamplingParams
from engine.policy import Policy
from kvchat.bench.draw import Draw
from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.figures import ratio
from kvchat.bench.load import Arrival, Moment, Served, log_uniform
from kvchat.bench.side_by_side import Measures, measure, rows_over_time, serve_in_turn, table

REQUESTS = 20
LONGEST, QUICK_LONGEST = 4096, 1024
SHORTEST = 24
SLOTS = 5
"""Reservations that the memory holds."""
RESERVED, BLOCKS = "reserved", "blocks"
MAX_WASTE, MIN_GAIN, FASTER = 0.04, 2.0, 1.1
"""What is claimed; and what counts as faster."""


def run(setup: Setup) -> Result:
    """Raises LeftOut for a model with a very short context."""
    context = setup.config.context_length or setup.model().context_length
    longest = min(QUICK_LONGEST if setup.quick else LONGEST, context)
    longest -= longest % setup.config.block_size
    if longest < 8 * SHORTEST:
        raise LeftOut(f"the context of {context} tokens is too short for requests of very different length")
    settings: dict[str, Any] = {
        "kv_memory": setup.kv_bytes(SLOTS * longest),
        "context_length": longest,
        "max_sequences": REQUESTS,
        "prefix_caching": False,
    }
    engines = {RESERVED: setup.engine(Policy(reserve=longest), **settings), BLOCKS: setup.engine(**settings)}
    vocab_size = engines[BLOCKS].tokenizer.vocab_size
    served = serve_in_turn(setup, engines, 1 if setup.quick else 3, lambda seed: requests(seed, longest, vocab_size))
    return _result(served, longest)


def requests(seed: str, longest: int, vocab_size: int) -> list[Arrival]:
    """All there from the start, with lengths from a greeting to a text that nearly fills the reservation; a reply is
    an eighth of it."""
    source, draw = random.Random(seed), Draw(seed, vocab_size)
    arrivals = []
    for _ in range(REQUESTS):
        length = log_uniform(source, SHORTEST, longest)
        reply = max(4, length // 8)
        sampling = SamplingParams(temperature=0, max_tokens=reply, ignore_eos=True)
        arrivals.append(Arrival(0.0, GenerationRequest(tuple(draw(length - reply)), sampling)))
    return arrivals


def _holding(moment: Moment) -> float:
    """Share of the memory given away that has a token to hold."""
    pool = moment.stats.pool
    return pool.tokens / (pool.used * pool.block_size)


HOLDING = "of the memory taken holds tokens, %"
MOST = "conversations at once, most"
THROUGHPUT = "throughput, generated tokens/s"
MEASURES: Measures = {
    HOLDING: lambda served: 100 * served.mean(_holding),
    MOST: lambda served: max(moment.rows for moment in served.moments),
    "conversations at once, mean": lambda served: served.mean(lambda moment: moment.rows),
    THROUGHPUT: lambda served: served.tokens_per_s,
    "time of all, s": lambda served: served.seconds,
    "preemptions": lambda served: sum(request.metrics.preemptions for request in served.finished),
}


def _result(served: dict[str, list[Served]], longest: int) -> Result:
    measured = measure(served, MEASURES)
    gain, faster = (ratio(measured[BLOCKS][label], measured[RESERVED][label]) for label in (MOST, THROUGHPUT))
    waste = {policy: 1 - median(of[HOLDING]) / 100 for policy, of in measured.items()}
    answer = (
        f"In the memory of {SLOTS} reservations of {longest:,} tokens, blocks hold "
        f"{median(measured[BLOCKS][MOST]):.0f} of the {REQUESTS} conversations at once, {gain:.1f} times as many as "
        f"reservations do, since they waste "
        f"{waste[BLOCKS]:.1%} of the memory they take and reservations {waste[RESERVED]:.0%}; throughput is "
        f"{faster:.2f} times as high"
    )
    if faster < FASTER:
        answer += ", hardly more, since the prompts take as long either way"
    if waste[BLOCKS] > MAX_WASTE or gain < MIN_GAIN:
        answer += f"; so less than {MAX_WASTE:.0%} of waste and {MIN_GAIN:.0f} times the conversations were not reached"
    return Result(
        answer=f"{answer}.",
        table=table(measured),
        plot=rows_over_time(served, "conversations at once"),
        ratios={
            "conversations at once, blocks / reserved": gain,
            "throughput, blocks / reserved": faster,
            "waste of the memory taken, blocks": waste[BLOCKS],
            "waste of the memory taken, reserved": waste[RESERVED],
        },
        measured=measured,
    )

"""The same queue of requests under static and continuous batching."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from engine.api import GenerationRequest, SamplingParams
from engine.policy import Policy
from kvchat.bench.draw import Draw
from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.figures import ratio
from kvchat.bench.load import Arrival, Served, log_uniform
from kvchat.bench.side_by_side import Measures, measure, rows_over_time, serve_in_turn, table

SLOTS = 8
"""Sequences that are computed together."""
REQUESTS = 4 * SLOTS
PROMPT = (16, 48)
REPLY = (8, 256)
STATIC, CONTINUOUS = "static", "continuous"


def run(setup: Setup) -> Result:
    """Raises LeftOut for a model with a very short context."""
    room = sum(high for _, high in (PROMPT, REPLY))
    settings: dict[str, Any] = {
        "kv_memory": setup.kv_bytes(SLOTS * (room + 64)),
        "max_sequences": SLOTS,
        "prefix_caching": False,
    }
    engines = {STATIC: setup.engine(Policy(static_batches=True), **settings), CONTINUOUS: setup.engine(**settings)}
    if engines[STATIC].info.context_length < room:
        raise LeftOut(f"the context of {engines[STATIC].info.context_length} tokens is shorter than {room}")
    vocab_size = engines[STATIC].tokenizer.vocab_size
    served = serve_in_turn(setup, engines, 1 if setup.quick else 5, lambda seed: requests(seed, vocab_size))
    return _result(served)


def requests(seed: str, vocab_size: int) -> list[Arrival]:
    """All there from the start: questions of a sentence, replies from a few words to a page."""
    source, draw = random.Random(seed), Draw(seed, vocab_size)
    arrivals = []
    for _ in range(REQUESTS):
        sampling = SamplingParams(temperature=0, max_tokens=log_uniform(source, *REPLY), ignore_eos=True)
        arrivals.append(Arrival(0.0, GenerationRequest(tuple(draw(log_uniform(source, *PROMPT))), sampling)))
    return arrivals


def _idle(served: Served) -> float:
    """Share of the slots that nobody used, over all steps in which somebody waited for one."""
    waited = [moment.rows for moment in served.moments if moment.stats.waiting]
    return 1 - sum(waited) / (SLOTS * len(waited)) if waited else 0.0


IDLE = "slots idle while requests wait, %"
THROUGHPUT = "throughput, generated tokens/s"
STEPS = "steps"
MEASURES: Measures = {
    IDLE: lambda served: 100 * _idle(served),
    STEPS: lambda served: len(served.moments),
    THROUGHPUT: lambda served: served.tokens_per_s,
    "median time from arrival to the end of a reply, s": lambda served: median(
        request.metrics.e2e_s for request in served.finished
    ),
    "time of all, s": lambda served: served.seconds,
}


def _result(served: dict[str, list[Served]]) -> Result:
    measured = measure(served, MEASURES)
    faster = ratio(measured[CONTINUOUS][THROUGHPUT], measured[STATIC][THROUGHPUT])
    fewer = ratio(measured[STATIC][STEPS], measured[CONTINUOUS][STEPS])
    idle = {policy: median(of[IDLE]) for policy, of in measured.items()}
    answer = (
        f"Static batches leave {idle[STATIC] / 100:.0%} of {SLOTS} slots idle while requests wait, continuous batching "
        f"{idle[CONTINUOUS] / 100:.0%}; it serves the same {REQUESTS} requests in {fewer:.2f} times fewer steps with "
        f"{faster:.2f} times the throughput"
    )
    if faster < 1 + (fewer - 1) / 2:
        answer += (
            ", less than the steps promise, because here a step of few sequences is that much shorter than one of many"
        )
    return Result(
        answer=f"{answer}.",
        table=table(measured),
        plot=rows_over_time(served, "slots in use"),
        ratios={"throughput, continuous / static": faster, "steps, static / continuous": fewer},
        measured=measured,
    )

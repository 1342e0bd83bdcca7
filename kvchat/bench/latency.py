"""What became of a load, in the figures that it is judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from engine.api import Metrics
from kvchat.bench.load import Moment, Served


@dataclass(frozen=True, slots=True)
class Spread:
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one or several runs of the same load; times in seconds."""

    requests: int
    ttft_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    queue_s: Spread
    tokens_per_s: float
    """The median of the runs."""
    most_waiting: int
    most_running: int
    preemptions: int
    hit_rate: float
    """The cached share of all prompt tokens."""
    pool_mean: float
    """Share of the pool in use, over the time in which anything ran."""
    pool_most: float


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least `share` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def tail(requests: int) -> str:
    """What the 95th percentile of so many is to be called."""
    return "p95" if requests >= 20 else "max"


def summarize(runs: Sequence[Served]) -> Summary:
    """Of all requests of the runs together."""
    metrics = [finished.metrics for run in runs for finished in run.finished]
    moments = [moment for run in runs for moment in run.moments]

    def spread(of: Callable[[Metrics], float | None]) -> Spread:
        values = [value for each in metrics if (value := of(each)) is not None]
        return Spread(*(percentile(values, share) for share in (0.5, 0.95, 0.99)))

    return Summary(
        requests=len(metrics),
        ttft_s=spread(lambda each: each.ttft_s),
        tpot_s=spread(lambda each: each.tpot_s),
        e2e_s=spread(lambda each: each.e2e_s),
        queue_s=spread(lambda each: each.queue_s),
        tokens_per_s=median(run.tokens_per_s for run in runs),
        most_waiting=max(moment.stats.waiting for moment in moments),
        most_running=max(moment.stats.running for moment in moments),
        preemptions=sum(each.preemptions for each in metrics),
        hit_rate=sum(each.cached_tokens for each in metrics) / sum(each.prompt_tokens for each in metrics),
        pool_mean=sum(run.mean(pool_share) for run in runs) / len(runs),
        pool_most=max(pool_share(moment) for moment in moments),
    )


def pool_share(moment: Moment) -> float:
    """Of the pool, what is in use by what runs."""
    return moment.stats.pool.used / moment.stats.pool.total

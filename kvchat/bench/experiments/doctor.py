"""What is slow under a load, and why: the figures beside the limits that kvchat.diagnosis reads them by."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from engine.api import Event, Finished, ModelInfo
from kvchat.bench.experiment import Result, Setup
from kvchat.bench.figures import number
from kvchat.bench.latency import Summary, percentile, pool_share, summarize, tail
from kvchat.bench.load import Served, serve
from kvchat.bench.mixes import Load
from kvchat.bench.plot import Plot, Series
from kvchat.diagnosis import (
    CHUNK_TOKENS,
    KV_SHARE,
    QUEUED_SHARE,
    SLOW_TPOT_S,
    SLOW_TTFT_S,
    Reading,
    diagnose,
    is_blocked,
    kv_share,
)


def run(setup: Setup, load: Load | None = None) -> Result:
    """With the settings as they are."""
    load = load or Load.of("blend", setup.quick)
    engine = setup.engine()
    setup.progress("serving", 0.0)
    arrivals = load.arrivals(engine.info.context_length, engine.tokenizer.vocab_size, str(setup.seed))
    ended = 0

    def after_step(events: list[Event]) -> None:
        nonlocal ended
        ended += sum(1 for event in events if isinstance(event, Finished))
        setup.progress("serving", ended / len(arrivals))

    served = serve(engine, arrivals, after_step)
    return _result(load, read(served, engine.info), summarize([served]), served)


def read(served: Served, model: ModelInfo) -> Reading:
    """The slow end of a load, and how it was served on average."""
    metrics = [finished.metrics for finished in served.finished]
    slow = percentile([each.ttft_s or 0.0 for each in metrics], 0.95)
    late = next(each for each in metrics if (each.ttft_s or 0.0) == slow)
    computed = sum(each.prompt_tokens - each.cached_tokens for each in metrics)
    shared = [moment for moment in served.moments if moment.rows > 1]
    return Reading(
        ttft_s=slow,
        queue_s=late.queue_s,
        computed_tokens=late.prompt_tokens - late.cached_tokens,
        tpot_s=percentile([each.tpot_s for each in metrics if each.tpot_s is not None], 0.95),
        chunk_tokens=computed / len(shared) if shared else 0.0,
        max_sequences=served.moments[0].stats.max_sequences,
        preemptions=sum(each.preemptions for each in metrics),
        blocked=any(is_blocked(moment.stats) for moment in served.moments),
        kv_share=served.mean(lambda moment: kv_share(moment.stats, model)),
        weights=model.weights,
        kv_dtype=model.kv_dtype,
    )


def _result(load: Load, reading: Reading, summary: Summary, served: Served) -> Result:
    found = diagnose(reading)
    end = tail(summary.requests)
    ttft, tpot = summary.ttft_s.p95, summary.tpot_s.p95
    if found.bottleneck == "none":
        answer = (
            f"Nothing is slow here with {load}: the first token comes after {number(ttft)} s and the next ones every "
            f"{number(1000 * tpot)} ms ({end}), {number(summary.tokens_per_s)} tokens/s in all"
        )
    else:
        answer = f"{_NAMES[found.bottleneck]}: {found.reason}. What helps: {found.advice}"
    return Result(
        answer=f"{answer}.",
        table=_table(reading, summary),
        plot=Plot(
            x="seconds",
            y="sequences; % of the pool",
            series=[
                Series(name, [moment.at_s for moment in served.moments], values)
                for name, values in {
                    "running": [float(moment.stats.running) for moment in served.moments],
                    "waiting": [float(moment.stats.waiting) for moment in served.moments],
                    "% of the pool in use": [100 * pool_share(moment) for moment in served.moments],
                }.items()
            ],
        ),
        ratios={f"TTFT {end} / limit": ttft / SLOW_TTFT_S, f"TPOT {end} / limit": tpot / SLOW_TPOT_S},
        measured={
            "load": str(load),
            "diagnosis": asdict(found),
            "reading": asdict(reading),
            "summary": asdict(summary),
            "requests": [msgspec.structs.asdict(each.metrics) for each in served.finished],
        },
    )


_NAMES = {
    "queueing": "Queueing",
    "prefill": "Prefill",
    "decode": "Decoding",
    "memory": "Memory policy",
}


def _table(reading: Reading, summary: Summary) -> list[list[str]]:
    queued = reading.queue_s / reading.ttft_s if reading.ttft_s else 0.0
    at_once = summary.tokens_per_s * summary.tpot_s.p50
    return [
        ["", "here", "slow from", "then look at"],
        [
            f"TTFT, {tail(summary.requests)}",
            f"{number(summary.ttft_s.p95)} s",
            f"{SLOW_TTFT_S:g} s",
            "what it is made of",
        ],
        ["  of it queued", f"{queued:.0%}", f"{QUEUED_SHARE:.0%}", "queueing, else prefill"],
        ["  new tokens read", number(reading.computed_tokens), "", "prefill"],
        [
            f"TPOT, {tail(summary.requests)}",
            f"{number(1000 * summary.tpot_s.p95)} ms",
            f"{1000 * SLOW_TPOT_S:g} ms",
            "what a step does",
        ],
        ["  prompt tokens in a step", number(reading.chunk_tokens), f"{CHUNK_TOKENS}", "prefill beside it"],
        [
            "  keys and values, of what it reads",
            f"{reading.kv_share:.0%}",
            f"{KV_SHARE:.0%}",
            "decode: KV, else weights",
        ],
        ["throughput, tokens/s", number(summary.tokens_per_s), "", f"{at_once:.1f} replies in a step on average"],
        ["most running, most waiting", f"{summary.most_running}, {summary.most_waiting}", "", "queueing"],
        ["requests wait for blocks", "yes" if reading.blocked else "no", "yes", "memory policy"],
        ["preemptions", number(reading.preemptions), "1", "memory policy"],
        ["pool in use: mean, most", f"{summary.pool_mean:.0%}, {summary.pool_most:.0%}", "", "memory policy"],
        ["prompt tokens from the cache", f"{summary.hit_rate:.0%}", "", "prefill"],
    ]

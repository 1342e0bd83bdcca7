"""The same arrivals under each profile: short questions, long documents, a long text, or all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict, replace

import msgspec

from kvchat.bench.experiment import Result, Setup
from kvchat.bench.figures import number
from kvchat.bench.latency import Spread, Summary, pool_share, summarize
from kvchat.bench.load import Served, serve
from kvchat.bench.mixes import SIZED_FOR, Load
from kvchat.bench.plot import Plot, Series
from kvchat.profiles import PROFILES, ProfileName

POOL = 2 * SIZED_FOR
"""Tokens that the pool holds in the compute dtype, so that requests contend for it."""

Runs = dict[ProfileName, list[Served]]
"""Of each profile, one for each round."""


def run(setup: Setup, load: Load | None = None) -> Result:
    load = load or Load.of("blend", setup.quick)
    floats = replace(setup, config=msgspec.structs.replace(setup.config, kv_dtype="auto"))
    context = setup.config.context_length or setup.model().context_length
    memory = setup.config.kv_memory or floats.kv_bytes(round(load.scale * min(POOL, 2 * context)))
    rounds = 1 if setup.quick else 3
    runs: Runs = {name: [] for name in PROFILES}
    for turn in range(rounds):
        for done, (name, profile) in enumerate(PROFILES.items()):
            setup.progress(f"under {name}", (turn * len(PROFILES) + done) / (rounds * len(PROFILES)))
            # A fresh engine each time: the cache of the round before would answer this one's.
            engine = setup.engine(**profile.settings, kv_memory=memory)
            arrivals = load.arrivals(engine.info.context_length, engine.tokenizer.vocab_size, f"{setup.seed} {turn}")
            runs[name].append(serve(engine, arrivals))
            del engine
            gc.collect()  # its pool, before the next one's
    return _result(load, memory, runs)


def _result(load: Load, memory: int, runs: Runs) -> Result:
    found = {name: summarize(each) for name, each in runs.items()}
    ttft = _ranked({name: each.ttft_s.p95 for name, each in found.items()}, "s")
    tpot = _ranked({name: 1000 * each.tpot_s.p95 for name, each in found.items()}, "ms")
    answer = f"With {load}, the first token comes soonest under {ttft}, and the next ones under {tpot}, both p95"
    return Result(
        answer=f"{answer}.",
        table=_table(found),
        plot=Plot(
            x="seconds",
            y="% of the pool in use",
            series=[
                Series(name, [moment.at_s for moment in last.moments], [100 * pool_share(m) for m in last.moments])
                for name, (*_, last) in runs.items()
            ],
        ),
        ratios={
            f"{name} / chat, {label}": of(found[name]) / of(found["chat"])
            for label, of in _COMPARED.items()
            for name in runs
            if name != "chat"
        },
        measured={
            "load": str(load),
            "kv_memory": memory,
            "profiles": {name: PROFILES[name].settings | asdict(summary) for name, summary in found.items()},
            "requests": {name: [_requests(run) for run in each] for name, each in runs.items()},
        },
        notes=[
            f"{name}: {PROFILES[name].pattern}; {', '.join(f'{k} {v}' for k, v in PROFILES[name].settings.items())}"
            for name in runs
        ]
        + [f"A pool of {memory / 2**20:,.0f} MiB; the same arrivals for each profile; replies of a fixed length."],
    )


_COMPARED: dict[str, Callable[[Summary], float]] = {
    "TTFT p95": lambda each: each.ttft_s.p95,
    "TPOT p95": lambda each: each.tpot_s.p95,
    "tokens/s": lambda each: each.tokens_per_s,
}


def _ranked(found: dict[ProfileName, float], unit: str) -> str:
    """ "chat (0.41 s), before documents (0.50 s) and writer (2.00 s)"."""
    first, *others = (f"{name} ({number(found[name])} {unit})" for name in sorted(found, key=lambda name: found[name]))
    return f"{first}, before {' and '.join(others)}"


def _table(found: dict[ProfileName, Summary]) -> list[list[str]]:
    def spread(spread: Spread, unit: float = 1.0) -> str:
        return " / ".join(number(unit * value) for value in (spread.p50, spread.p95, spread.p99))

    rows: dict[str, Callable[[Summary], str]] = {
        "requests": lambda each: number(each.requests),
        "TTFT, s: p50 / p95 / p99": lambda each: spread(each.ttft_s),
        "TPOT, ms: p50 / p95 / p99": lambda each: spread(each.tpot_s, 1000),
        "whole reply, s: p50 / p95 / p99": lambda each: spread(each.e2e_s),
        "queued, s: p50 / p95 / p99": lambda each: spread(each.queue_s),
        "tokens/s": lambda each: number(each.tokens_per_s),
        "most running, most waiting": lambda each: f"{each.most_running}, {each.most_waiting}",
        "preemptions": lambda each: number(each.preemptions),
        "prompt tokens from the cache": lambda each: f"{each.hit_rate:.0%}",
        "pool in use: mean, most": lambda each: f"{each.pool_mean:.0%}, {each.pool_most:.0%}",
    }
    return [["", *found], *([label, *map(cell, found.values())] for label, cell in rows.items())]


def _requests(run: Served) -> list[dict[str, object]]:
    return [msgspec.structs.asdict(each.metrics) for each in run.finished]

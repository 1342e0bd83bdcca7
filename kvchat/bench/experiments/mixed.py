"""The same arrivals under each profile: short questions, long documents, a long text, or all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace

import msgspec

from kvchat.bench.experiment import Result, Setup
from kvchat.bench.figures import number
from kvchat.bench.latency import Spread, Summary, pool_share, summarize, tail
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
    return _result(load, memory, runs, _replaced(setup))


def _replaced(setup: Setup) -> list[str]:
    """A note on the user's own settings that every profile replaces."""
    own = [f"{name} {value}" for name, value in setup.changed.items() if name in PROFILES["chat"].settings]
    return [f"Your own settings do not count here, each profile has its own: {', '.join(own)}."] if own else []


def _result(load: Load, memory: int, runs: Runs, notes: list[str]) -> Result:
    found = {name: summarize(each) for name, each in runs.items()}
    rounds = {name: [summarize([run]) for run in each] for name, each in runs.items()}
    end = tail(found["chat"].requests)
    compared = {f"TTFT {end}": _ttft, f"TPOT {end}": _tpot, "tokens/s": lambda each: each.tokens_per_s}
    first, later = _best(found, rounds, _ttft), _best(found, rounds, _tpot)
    answer = (
        f"With {load}, the first token comes soonest under {_ranked(found, first, _ttft, 1, 's')}, and the next ones "
        f"under {_ranked(found, later, _tpot, 1000, 'ms')}, both {end}"
    )
    if not set(first) & set(later):
        answer += "; so even this load has no one profile that suits it best"
    else:
        answer += "; that is one load: whether profiles rank otherwise under another, its --mix tells"
    if len(runs["chat"]) == 1:
        notes = [*notes, "One round: how much of a difference is chance cannot be seen."]
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
            for label, of in compared.items()
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
        + [f"A pool of {memory / 2**20:,.0f} MiB; the same arrivals for each profile; replies of a fixed length."]
        + notes,
    )


def _ttft(summary: Summary) -> float:
    return summary.ttft_s.p95


def _tpot(summary: Summary) -> float:
    return summary.tpot_s.p95


def _best(
    found: dict[ProfileName, Summary],
    rounds: dict[ProfileName, list[Summary]],
    of: Callable[[Summary], float],
) -> list[ProfileName]:
    """The profile with the least of a figure, and those of which a round was no slower than one of its own."""
    best = min(found, key=lambda name: of(found[name]))
    return [name for name in found if min(map(of, rounds[name])) <= max(map(of, rounds[best]))]


def _ranked(
    found: dict[ProfileName, Summary], best: list[ProfileName], of: Callable[[Summary], float], unit: int, label: str
) -> str:
    """ "chat (0.41 s) and writer (0.42 s), which are level, before documents (2.00 s)"."""

    def listed(names: Iterable[ProfileName]) -> str:
        return " and ".join(
            f"{name} ({number(unit * of(found[name]))} {label})" for name in sorted(names, key=lambda n: of(found[n]))
        )

    level = ", which are level" if len(best) > 1 else ""
    others = [name for name in found if name not in best]
    return f"{listed(best)}{level}" + (f", before {listed(others)}" if others else "")


def _table(found: dict[ProfileName, Summary]) -> list[list[str]]:
    requests = found["chat"].requests
    shares = "p50 / p95 / p99" if requests >= 100 else "p50 / p95 / max" if requests >= 20 else "p50 / max"

    def spread(spread: Spread, unit: float = 1.0) -> str:
        values = (spread.p50, spread.p95, spread.p99) if requests >= 20 else (spread.p50, spread.p99)
        return " / ".join(number(unit * value) for value in values)

    rows: dict[str, Callable[[Summary], str]] = {
        "requests": lambda each: number(each.requests),
        f"TTFT, s: {shares}": lambda each: spread(each.ttft_s),
        f"TPOT, ms: {shares}": lambda each: spread(each.tpot_s, 1000),
        f"whole reply, s: {shares}": lambda each: spread(each.e2e_s),
        f"queued, s: {shares}": lambda each: spread(each.queue_s),
        "tokens/s": lambda each: number(each.tokens_per_s),
        "most running, most waiting": lambda each: f"{each.most_running}, {each.most_waiting}",
        "preemptions": lambda each: number(each.preemptions),
        "prompt tokens from the cache": lambda each: f"{each.hit_rate:.0%}",
        "pool in use: mean, most": lambda each: f"{each.pool_mean:.0%}, {each.pool_most:.0%}",
    }
    return [["", *found], *([label, *map(cell, found.values())] for label, cell in rows.items())]


def _requests(run: Served) -> list[dict[str, object]]:
    return [msgspec.structs.asdict(each.metrics) for each in run.finished]

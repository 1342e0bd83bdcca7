"""The time of a token behind contexts of growing length, with the KV cache and without one."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from engine.api import GenerationRequest, ModelInfo, SamplingParams
from engine.engine import Engine
from engine.policy import Policy
from kvchat.bench.draw import Draw
from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.figures import number, ratio, spread
from kvchat.bench.plot import Plot, Series

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
QUICK_LENGTHS = (128, 512, 1024, 4096)
TOKENS = 16
"""Timed in a row with the cache; without it one is enough."""
FLAT = 1.2
"""What still counts as flat."""


def run(setup: Setup) -> Result:
    cached, forgetful = setup.engine(), setup.engine(Policy(keep_kv=False))
    room = cached.info.context_length - TOKENS - 1
    lengths = [n for n in (QUICK_LENGTHS if setup.quick else LENGTHS) if n <= room]
    if len(lengths) < 2:
        raise LeftOut(f"the context of {cached.info.context_length} tokens is too short to see a growth in")
    rounds = 1 if setup.quick else 5
    times: dict[str, list[list[float]]] = {"with": [[] for _ in lengths], "without": [[] for _ in lengths]}
    done, total = 0, rounds * sum(lengths)
    for turn in range(rounds):
        prompt = tuple(Draw(f"{setup.seed} {turn}", cached.tokenizer.vocab_size)(lengths[-1]))
        if turn == 0:
            for engine in (cached, forgetful):
                _later_token(engine, prompt[:32])
        for index, length in enumerate(lengths):
            setup.progress(f"a token behind {length:,}", done / total)
            times["with"][index].append(_later_token(cached, prompt[:length]))
            times["without"][index].append(_first_token(forgetful, prompt[:length]))
            done += length
    return _result(cached.info, lengths, times)


def _later_token(engine: Engine, prompt: tuple[int, ...]) -> float:
    """Seconds a token after the first. Prompts that begin alike share their KV: only the first token is sooner."""
    [done] = engine.generate(
        [GenerationRequest(prompt, SamplingParams(temperature=0, max_tokens=TOKENS + 1, ignore_eos=True))]
    )
    return done.metrics.tpot_s or 0.0


def _first_token(engine: Engine, prompt: tuple[int, ...]) -> float:
    """Seconds of the first token, which without a cache is computed as every other is."""
    started = perf_counter()
    engine.generate([GenerationRequest(prompt, SamplingParams(temperature=0, max_tokens=1))])
    return perf_counter() - started


def _grows(factor: float) -> str:
    return f"grows {factor:.1f}-fold" if round(factor, 1) > 1 else "does not grow"


def _why(info: ModelInfo, short: int, long: int, growth: float) -> str:
    """Whether what a step reads accounts for the larger part of the growth of its time."""
    kv, weights = info.kv_token_bytes * long, info.weight_bytes
    more = (weights + kv) / (weights + info.kv_token_bytes * short)
    read = f"{number(kv / 1e6)} MB of keys and values a step, beside {number(weights / 1e6)} MB of weights"
    if more - 1 >= (growth - 1) / 2:
        return f"because behind {long:,} tokens this model reads {read}"
    return f"and not because of what is read: {read}, are {more:.2f} times as much as behind {short:,} tokens"


def _result(info: ModelInfo, lengths: list[int], times: dict[str, list[list[float]]]) -> Result:
    seconds = {name: [median(values) for values in column] for name, column in times.items()}
    last = len(lengths) - 1
    base = max((i for i, n in enumerate(lengths) if n * 4 <= lengths[last]), default=0)
    short, long = f"{lengths[base]:,}", f"{lengths[last]:,}"
    growth = {name: ratio(column[last], column[base]) for name, column in times.items()}
    factors = [ratio(slow, fast) for slow, fast in zip(times["without"], times["with"], strict=True)]
    answer = (
        f"From {short} to {long} tokens of context the time of a token {_grows(growth['without'])} without a KV "
        f"cache and {_grows(growth['with'])} with one, with which it is {number(factors[last])} times faster at {long}"
    )
    if growth["with"] > FLAT:
        answer += f"; that is not flat, {_why(info, lengths[base], lengths[last], growth['with'])}"
    rows = [["context", "with, ms a token", "without, ms a token", "without / with"]]
    for index, length in enumerate(lengths):
        mine = {name: [1000 * value for value in column[index]] for name, column in times.items()}
        rows.append([f"{length:,}", spread(mine["with"]), spread(mine["without"]), f"{number(factors[index])}x"])
    return Result(
        answer=f"{answer}.",
        table=rows,
        plot=Plot(
            x="context, tokens",
            y="ms a token",
            log=True,
            series=[
                Series(f"{name} a KV cache", lengths, [1000 * value for value in column])
                for name, column in seconds.items()
            ],
        ),
        ratios={f"{long} / {short}, {name} a KV cache": value for name, value in growth.items()}
        | {f"without / with, at {long}": factors[last]},
        measured={"contexts": lengths, "seconds_per_token": times},
    )

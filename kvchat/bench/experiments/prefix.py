"""The time to the first token of a new tab on a persona that another tab has used, with and without prefix reuse."""

from __future__ import annotations

from statistics import median

from engine.api import GenerationRequest, SamplingParams
from engine.engine import Engine
from kvchat.bench.draw import Draw
from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.figures import number, ratio, spread
from kvchat.bench.plot import Plot, Series

PERSONAS = (50, 300, 1000, 3000)
"""Tokens of their system prompts."""
QUESTION = 24
REUSED, COMPUTED = "with reuse", "without"
LITTLE_MS = 50
"""A difference that hardly anybody notices."""


def run(setup: Setup) -> Result:
    """Raises LeftOut for a model with a very short context."""
    engines = {COMPUTED: setup.engine(prefix_caching=False), REUSED: setup.engine(prefix_caching=True)}
    room = engines[REUSED].info.context_length - QUESTION - 1
    personas = [tokens for tokens in PERSONAS if tokens <= room]
    if not personas:
        raise LeftOut(f"the context of {room + QUESTION + 1} tokens is shorter than any persona")
    times: dict[str, list[list[float]]] = {name: [[] for _ in personas] for name in engines}
    rounds = 1 if setup.quick else 7
    done, total = 0, rounds * sum(personas)
    for turn in range(rounds):
        draw = Draw(f"{setup.seed} {turn}", engines[REUSED].tokenizer.vocab_size)
        if turn == 0:
            for engine in engines.values():
                _ttft(engine, draw(QUESTION))
        for index, tokens in enumerate(personas):
            setup.progress(f"a persona of {tokens:,} tokens", done / total)
            persona, question = draw(tokens), draw(QUESTION)
            _ttft(engines[REUSED], [*persona, *draw(QUESTION)])  # the first tab
            for name, engine in engines.items():
                times[name][index].append(_ttft(engine, [*persona, *question]))
            done += tokens
    return _result(personas, times)


def _ttft(engine: Engine, prompt: list[int]) -> float:
    """Seconds."""
    [done] = engine.generate([GenerationRequest(tuple(prompt), SamplingParams(temperature=0, max_tokens=1))])
    return done.metrics.ttft_s or 0.0


def _result(personas: list[int], times: dict[str, list[list[float]]]) -> Result:
    ms = {name: [[1000 * value for value in values] for values in column] for name, column in times.items()}
    middle = {name: [median(values) for values in column] for name, column in ms.items()}
    factors = [ratio(slow, fast) for slow, fast in zip(ms[COMPUTED], ms[REUSED], strict=True)]
    saved = [slow - fast for slow, fast in zip(middle[COMPUTED], middle[REUSED], strict=True)]
    answer = (
        f"Behind a persona of {personas[-1]:,} tokens the first token of a new tab comes after "
        f"{number(middle[REUSED][-1])} ms instead of {number(middle[COMPUTED][-1])} ms, {factors[-1]:.0f} times sooner"
    )
    if len(personas) > 1:
        small = f"behind {personas[0]:,} tokens"
        gain = f"{number(saved[0])} ms, {factors[0]:.1f} times sooner"
        much = saved[0] >= LITTLE_MS
        answer += f"; {small}, too, it gains much: {gain}" if much else f"; {small} it saves only {gain}"
    rows = [["persona, tokens", f"TTFT {REUSED}, ms", f"TTFT {COMPUTED}, ms", "sooner"]]
    for index, tokens in enumerate(personas):
        cells = (spread(ms[REUSED][index]), spread(ms[COMPUTED][index]), f"{factors[index]:.1f}x")
        rows.append([f"{tokens:,}", *cells])
    return Result(
        answer=f"{answer}.",
        table=rows,
        plot=Plot(
            x="tokens of the persona",
            y="TTFT, ms",
            log=True,
            series=[Series(name, personas, column) for name, column in middle.items()],
        ),
        ratios={
            f"TTFT without / with reuse, {tokens:,} tokens": factor
            for tokens, factor in zip(personas, factors, strict=True)
        },
        measured={"personas": personas, "ttft_s": times},
    )

"""What a long paste in one tab does to the reply that runs in another, computed in chunks or in one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter

from engine.api import Event, Finished, GenerationRequest, SamplingParams, TokenDelta
from engine.engine import Engine
from kvchat.bench.draw import Draw
from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.figures import ratio, spread
from kvchat.bench.latency import percentile, tail
from kvchat.bench.plot import Plot, Series

PASTE, QUICK_PASTE = 4096, 2048
"""Tokens, where the context holds them with a quarter left."""
LEAST_PASTE = 256
PROMPT = 64
BEFORE = 16
"""Tokens of the reply before the paste comes."""
ALONE = 64
"""Tokens in which the reply is measured without a paste."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One reply, from the moment of the paste to the first token behind it."""

    token_at_s: Sequence[float]
    """When each token of the reply came, since the paste."""
    gaps_s: Sequence[float]
    """Before each of them, since the token before."""
    paste_ttft_s: float | None

    @property
    def p95_s(self) -> float:
        return percentile(self.gaps_s, 0.95)


def run(setup: Setup) -> Result:
    paste, chunk = _sizes(setup)
    memory = setup.kv_bytes(2 * paste + 2 * (PROMPT + BEFORE + ALONE))
    engines = {
        name: setup.engine(max_batch_tokens=batch, max_sequences=2, kv_memory=memory)
        for name, batch in (("chunks", chunk), ("one step", paste + 2))
    }
    cases = {
        "alone": (engines["chunks"], 0),
        "chunks": (engines["chunks"], paste),
        "one step": (engines["one step"], paste),
    }
    trials: dict[str, list[Trial]] = {name: [] for name in cases}
    rounds = 2 if setup.quick else 5
    for turn in range(-1, rounds):  # the first one warms up
        for number, (name, (engine, tokens)) in enumerate(cases.items()):
            draw = Draw(f"{setup.seed} {turn} {name}", engine.tokenizer.vocab_size)
            trial = _trial(engine, draw(PROMPT), draw(tokens if turn >= 0 else tokens // 8))
            if turn >= 0:
                trials[name].append(trial)
            setup.progress(f"round {max(turn, 0) + 1} of {rounds}", (number + 1) / len(cases))
    return _result(paste, chunk, trials)


def _sizes(setup: Setup) -> tuple[int, int]:
    """Tokens of the paste, and of a chunk of it. Raises LeftOut and EngineError."""
    context = setup.config.context_length or setup.model().context_length
    paste = min(QUICK_PASTE if setup.quick else PASTE, context * 3 // 4)
    if paste < LEAST_PASTE:
        raise LeftOut(f"a context of {context} tokens is too short for a long paste")
    return paste, min(setup.config.max_batch_tokens, paste // 4)


def _trial(engine: Engine, prompt: list[int], paste: list[int]) -> Trial:
    """A reply that `paste` interrupts, or without one, one that is measured as long."""
    reply = engine.submit(_request(prompt, engine.info.context_length - len(prompt)))
    while _tokens(engine.step(), reply) == 0:
        pass
    for _ in range(BEFORE):
        engine.step()
    started = last = perf_counter()
    pasted = engine.submit(_request(paste, 1)) if paste else ""
    times: list[float] = []
    gaps: list[float] = []
    ended = False
    while not ended:
        events = engine.step()
        now = perf_counter()
        if _tokens(events, reply):
            times.append(now - started)
            gaps.append(now - last)
            last = now
        ended = _ended(events, pasted) if paste else len(gaps) == ALONE
    engine.abort(reply)
    while engine.has_work:
        engine.step()
    return Trial(times, gaps, now - started if paste else None)


def _request(prompt: list[int], max_tokens: int) -> GenerationRequest:
    return GenerationRequest(tuple(prompt), SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True))


def _tokens(events: list[Event], request_id: str) -> int:
    return sum(len(e.token_ids) for e in events if isinstance(e, TokenDelta) and e.request_id == request_id)


def _ended(events: list[Event], request_id: str) -> bool:
    return any(isinstance(event, Finished) and event.request_id == request_id for event in events)


def _result(paste: int, chunk: int, trials: dict[str, list[Trial]]) -> Result:
    tails = {name: [trial.p95_s for trial in each] for name, each in trials.items()}
    ttfts = {name: [trial.paste_ttft_s for trial in each if trial.paste_ttft_s] for name, each in trials.items()}
    p95 = {name: median(values) for name, values in tails.items()}
    ttft = {name: median(values) for name, values in ttfts.items() if values}
    saved, costs = ratio(tails["one step"], tails["chunks"]), ratio(tails["chunks"], tails["alone"])
    waits = {name: f"{1000 * value:,.0f} ms ({_tail(trials[name])})" for name, value in p95.items()}
    answer = (
        f"While another tab reads {paste:,} tokens in chunks of {chunk}, the running reply waits "
        f"{waits['chunks']} for a token, {costs:.1f} times as long as alone; with the paste in one "
        f"step it waits {waits['one step']}, {saved:.1f} times as long as in chunks. The first token behind the paste "
        f"comes after {ttft['chunks']:.2f} s in chunks and {ttft['one step']:.2f} s in one step"
    )
    names = {"alone": "alone", "chunks": f"paste in chunks of {chunk}", "one step": "paste in one step"}
    rows = [["the reply beside it", "ms a token, p50", "p95", "longest", "tokens meanwhile", "TTFT of the paste, s"]]
    for name, label in names.items():
        each = trials[name]
        columns = [
            [1000 * percentile(trial.gaps_s, 0.5) for trial in each],
            [1000 * trial.p95_s for trial in each],
            [1000 * max(trial.gaps_s) for trial in each],
        ]
        meanwhile = f"{median(len(trial.gaps_s) for trial in each):g}" if ttfts[name] else ""
        rows.append([label, *map(spread, columns), meanwhile, spread(ttfts[name]) if ttfts[name] else ""])
    window = max(ttft.values())
    return Result(
        answer=f"{answer}.",
        table=rows,
        plot=Plot(
            x="seconds since the paste",
            y="tokens of the reply",
            series=[_line(names[name], trials[name][-1], window) for name in ("chunks", "one step")],
        ),
        ratios={
            "one step / chunks, p95 ms a token": saved,
            "chunks / alone, p95 ms a token": costs,
            "one step / alone, p95 ms a token": ratio(tails["one step"], tails["alone"]),
            "chunks / one step, TTFT of the paste": ratio(ttfts["chunks"], ttfts["one step"]),
        },
        measured={
            "paste_tokens": paste,
            "chunk_tokens": chunk,
            "trials": {name: [asdict(trial) for trial in each] for name, each in trials.items()},
        },
    )


def _tail(trials: Sequence[Trial]) -> str:
    few = tail(min(len(trial.gaps_s) for trial in trials)) == "max"
    return "the longest gap" if few else "p95"


def _line(name: str, trial: Trial, window: float) -> Series:
    """The tokens so far, as steps."""
    x, y = [0.0], [0.0]
    for number, at_s in enumerate(trial.token_at_s):
        x += [at_s, at_s]
        y += [float(number), float(number + 1)]
    return Series(name, [*x, max(window, x[-1])], [*y, y[-1]])

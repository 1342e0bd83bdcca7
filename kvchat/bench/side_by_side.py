"""The same requests served by several engines in turn, and what came of it beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.engine import Engine
from kvchat.bench.experiment import Setup, Table
from kvchat.bench.figures import spread
from kvchat.bench.load import Arrival, Served, serve
from kvchat.bench.plot import Plot, Series

Measures = Mapping[str, Callable[[Served], float]]
"""By the labels of their rows."""
Measured = dict[str, dict[str, list[float]]]
"""For each engine and each measure a value per round."""


def serve_in_turn(
    setup: Setup, engines: Mapping[str, Engine], rounds: int, arrivals: Callable[[str], Sequence[Arrival]]
) -> dict[str, list[Served]]:
    """In each round, every engine serves what `arrivals` makes of the round's seed."""
    served: dict[str, list[Served]] = {name: [] for name in engines}
    for turn in range(rounds):
        requests = arrivals(f"{setup.seed} {turn}")
        for number, (name, engine) in enumerate(engines.items()):
            setup.progress(f"serving {len(requests)} requests", (turn + number / len(engines)) / rounds)
            served[name].append(serve(engine, requests))
    return served


def measure(served: Mapping[str, Sequence[Served]], measures: Measures) -> Measured:
    return {
        name: {label: [of(each) for each in runs] for label, of in measures.items()} for name, runs in served.items()
    }


def table(measured: Measured) -> Table:
    """A column for each engine, medians and spread."""
    labels = next(iter(measured.values()))
    return [["", *measured], *([label, *(spread(of[label]) for of in measured.values())] for label in labels)]


def rows_over_time(served: Mapping[str, Sequence[Served]], y: str) -> Plot:
    """How many sequences were running in each step of the last round."""
    lasts = {name: runs[-1].moments for name, runs in served.items()}
    return Plot(
        x="seconds",
        y=y,
        series=[Series(name, [m.at_s for m in last], [m.rows for m in last]) for name, last in lasts.items()],
    )

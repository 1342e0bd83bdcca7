"""The experiments: `run(setup)` in a module for each, imported when it runs."""

from __future__ import annotations

from kvchat.bench.experiment import Experiment

EXPERIMENTS = (
    Experiment(
        "recompute", "Without a KV cache each token takes longer the longer the context is; with one, hardly longer."
    ),
)
"""In the order of the report."""


def experiment(name: str) -> Experiment:
    return next(each for each in EXPERIMENTS if each.name == name)

"""`kvchat bench mixed` and `kvchat bench doctor`: experiments on a load that the user may choose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import click

from kvchat.bench.experiment import Experiment
from kvchat.bench.experiments import DOCTOR, MIXED
from kvchat.cli.bench.experiment import Asked, output_options, perform, setup_options
from kvchat.cli.options import Options, finite, pass_options

MIXES = ("chat", "documents", "writer", "blend")
RATES = (0.001, 1000.0)
MAX_REQUESTS = 10_000
MAX_SECONDS = 86_400


def _load_options(command: Callable[..., Any]) -> Any:
    for option in (
        click.option(
            "--duration",
            metavar="S",
            type=click.FloatRange(0, MAX_SECONDS, min_open=True),
            callback=finite,
            help="Let requests arrive for so many seconds.",
        ),
        click.option(
            "--requests", metavar="N", type=click.IntRange(1, MAX_REQUESTS), help="Let so many requests arrive."
        ),
        click.option(
            "--rate",
            metavar="R",
            type=click.FloatRange(*RATES),
            callback=finite,
            help="Requests a second, on average.",
        ),
        click.option(
            "--mix",
            metavar="MIX",
            type=click.Choice(MIXES),
            default="blend",
            help="What arrives: chat, documents, writer (one long text) or blend, the default.",
        ),
    ):
        command = option(command)
    return command


def _command(experiment: Experiment) -> click.Command:
    @click.command(experiment.name, help=f"Test: {experiment.claim}", short_help=experiment.claim)
    @_load_options
    @setup_options
    @output_options
    @pass_options
    def command(
        options: Options, mix: str, rate: float | None, requests: int | None, duration: float | None, **asked: Any
    ) -> None:
        if requests is not None and duration is not None:
            raise click.UsageError("--requests or --duration, not both: each says how long requests arrive")
        if mix == "writer" and not (rate is None and requests is None and duration is None):
            raise click.UsageError("the mix writer is one request: --rate, --requests and --duration do not go with it")

        from kvchat.bench.mixes import Load

        load = Load.of(mix, asked["quick"], rate, requests, duration)
        if duration is not None and load.rate * duration > MAX_REQUESTS:
            problem = f"{duration:g} s at {load.rate:g} requests a second are more than {MAX_REQUESTS:,} requests"
            raise click.UsageError(f"{problem}: lower --duration or --rate")
        run = import_module(f"kvchat.bench.experiments.{experiment.name}").run
        perform(experiment, Asked(options=options, **asked), partial(run, load=load))

    return command


mixed = _command(MIXED)
doctor = _command(DOCTOR)

"""`kvchat bench all`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kvchat.bench.experiments import EXPERIMENTS, PEERS
from kvchat.cli.bench.experiment import Asked, arguments, setup_options
from kvchat.cli.bench.peers import PEER_OPTIONS, beside, peer_options
from kvchat.cli.explain import explain
from kvchat.cli.options import Options, pass_options
from kvchat.cli.progress import ProgressLine


@click.command("all")
@click.option(
    "--report",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to write into; made if it is not there.",
)
@setup_options
@peer_options
@pass_options
def command(
    options: Options,
    report: Path,
    llama_cpp: Path | None,
    ggufs: tuple[Path, ...],
    quantize: Path | None,
    openvino_python: Path,
    **asked: Any,
) -> None:
    """Make every experiment and write one report.

    DIR, which must not hold a report yet, gets report.md, and of each experiment its plot and every measurement:
    NAME.svg, NAME.json. llama.cpp and OpenVINO GenAI take part when --gguf or --quantize gives them the model. What
    goes wrong with one experiment does not stop the others.
    """
    from kvchat.bench.experiment import LeftOut
    from kvchat.bench.plot import PlotError, require_matplotlib
    from kvchat.bench.report import Report, ReportExists

    progress = ProgressLine()
    try:
        require_matplotlib()
        setup = Asked(options=options, **asked).setup(progress, without=PEER_OPTIONS)
        written = Report(report)
    except (PlotError, ReportExists) as error:
        raise click.ClickException(str(error)) from None
    failed = []
    for experiment in EXPERIMENTS:
        mine, run, outcome = setup.named(experiment.name), None, None
        if experiment is PEERS:
            mine = replace(mine, arguments=arguments())
            run = beside(llama_cpp, ggufs, quantize, openvino_python)
        try:
            outcome = experiment.perform(mine, run)
            answer = outcome.result.answer
        except LeftOut as reason:
            answer = f"Left out: {reason}."
        except Exception as error:  # the others are still worth their time; what nobody expected is logged
            failed.append(experiment.name)
            answer = f"Failed: {explain(error)}."
        progress.end()
        print(f"{experiment.name}: {answer}", flush=True)
        try:
            written.add(experiment.name, answer, outcome)
        except OSError as error:
            failed.append(experiment.name)
            print(f"kvchat: {experiment.name} cannot be saved: {explain(error)}", file=sys.stderr)
    print(written.path)
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}; what is printed above says why")

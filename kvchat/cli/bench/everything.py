"""`kvchat bench all`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kvchat.bench.experiments import EXPERIMENTS, PEERS
from kvchat.cli.bench.experiment import Asked, setup_options
from kvchat.cli.bench.peers import beside, peer_options
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

    DIR gets report.md, and of each experiment its plot and every measurement: NAME.svg, NAME.json. The peers take part
    when --gguf or --quantize gives them the model. What goes wrong with one experiment does not stop the others.
    """
    from engine.errors import EngineError
    from kvchat.bench.experiment import LeftOut
    from kvchat.bench.plot import PlotError, require_matplotlib
    from kvchat.bench.report import Report

    try:
        require_matplotlib()
    except PlotError as error:
        raise click.ClickException(str(error)) from None
    progress = ProgressLine()
    setup = Asked(options=options, **asked).setup(progress)
    written = Report(report)
    for experiment in EXPERIMENTS:
        run = beside(llama_cpp, ggufs, quantize, openvino_python) if experiment is PEERS else None
        try:
            if run and not (ggufs or quantize):
                raise LeftOut("the other engines need the model: --gguf or --quantize")
            answer = written.add(experiment.perform(setup.named(experiment.name), run))
        except LeftOut as reason:
            answer = written.left_out(experiment, str(reason))
        except EngineError as error:
            answer = written.failed(experiment, str(error))
        progress.end()
        print(f"{experiment.name}: {answer}", flush=True)
    print(written.path)
    if written.failures:
        raise click.ClickException(f"failed: {', '.join(written.failures)}; {written.path} says why")

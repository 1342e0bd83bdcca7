"""A command for each experiment: the options that all have, and how a result is shown."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import randrange
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kvchat.cli.options import Options, model_option, pass_options
from kvchat.cli.progress import ProgressLine

if TYPE_CHECKING:
    from kvchat.bench.experiment import Experiment, Outcome, Result, Setup

PLOT_WIDTH, PLOT_HEIGHT = 90, 18
_FILE = click.Path(dir_okay=False, path_type=Path)
_NO_ARGUMENTS = ("as_json", "png", "svg", "report", "model")
"""Options that change nothing in what is measured, and the model, which is among the flags."""
MAX_SEED = 2**63 - 1
"""Of torch's generators and of TOML."""


def _in_a_folder(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}")
    return path


def _drawn(_: click.Context, __: click.Parameter, seed: int | None) -> int:
    return randrange(1 << 31) if seed is None else seed


def setup_options(command: Callable[..., Any]) -> Any:
    """What is measured: --quick, --model, --seed."""
    for option in (
        click.option(
            "--seed",
            metavar="N",
            type=click.IntRange(0, MAX_SEED),
            callback=_drawn,
            help="Of what is drawn; else a new one, which is printed.",
        ),
        model_option,
        click.option("--quick", is_flag=True, help="Fewer and shorter measurements."),
    ):
        command = option(command)
    return command


def output_options(command: Callable[..., Any]) -> Any:
    """How one result is shown: --json, --png, --svg."""
    for option in (
        click.option("--svg", metavar="FILE", type=_FILE, callback=_in_a_folder, help="Draw the plot into this file."),
        click.option("--png", metavar="FILE", type=_FILE, callback=_in_a_folder, help="Draw the plot into this file."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every measurement."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options that every experiment has."""

    options: Options
    quick: bool
    model: str | None
    seed: int
    as_json: bool = False
    png: Path | None = None
    svg: Path | None = None

    def setup(self, progress: ProgressLine, without: Sequence[str] = ()) -> Setup:
        """What the command in progress was asked, but for the arguments `without`. Raises what `resolve` raises."""
        from kvchat import paths
        from kvchat.bench.experiment import Setup
        from kvchat.cli.settings import resolve

        options = replace(self.options, model=self.model or self.options.model)
        config, file = resolve(options).config, options.config or paths.config_file()
        return Setup(
            config=config.engine,
            quick=self.quick,
            seed=self.seed,
            progress=progress.bar,
            flags=_flags(replace(options, model=config.model)),
            arguments=arguments(without),
            profile=config.profile,
            config_file=str(file) if file.exists() else None,
        )


def arguments(without: Sequence[str] = ()) -> list[str]:
    """What the command in progress was given, to be given again."""
    context = click.get_current_context()
    given: list[str] = []
    for option in context.command.params:
        name = option.name or ""
        # A seed was drawn if none was given.
        was_given = name == "seed" or context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not was_given or name in (*without, *_NO_ARGUMENTS):
            continue
        value = context.params[name]
        for each in value if option.multiple else (value,):
            given += [option.opts[0]] if each is True else [option.opts[0], str(each)]
    return given


def command_for(experiment: Experiment) -> click.Command:
    """`kvchat bench NAME` of an experiment without options of its own."""

    @click.command(experiment.name, help=f"Test: {experiment.claim}", short_help=experiment.claim)
    @setup_options
    @output_options
    @pass_options
    def command(options: Options, **asked: Any) -> None:
        perform(experiment, Asked(options=options, **asked))

    return command


def perform(experiment: Experiment, asked: Asked, run: Callable[[Setup], Result] | None = None) -> None:
    """Run an experiment, or `run` in its place, and show what it found as it was asked for."""
    from kvchat.bench.experiment import LeftOut
    from kvchat.bench.plot import PlotError, require_matplotlib, save

    progress = ProgressLine()
    try:
        if asked.png or asked.svg:
            require_matplotlib()
        for path in filter(None, (asked.png, asked.svg)):
            _try_to_write(path)
        outcome = experiment.perform(asked.setup(progress), run)
    except (LeftOut, PlotError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        progress.end()
    print(json.dumps(outcome.as_json(), ensure_ascii=False) if asked.as_json else shown(outcome))
    if asked.png:
        save(outcome.result.plot, asked.png, "png", outcome.claim)
    if asked.svg:
        save(outcome.result.plot, asked.svg, "svg", outcome.claim)


def _try_to_write(path: Path) -> None:
    """Raises OSError before anything is measured for a file that cannot be written."""
    was_there = path.exists()
    path.open("ab").close()
    if not was_there:
        path.unlink()


def shown(outcome: Outcome) -> str:
    """The claim, the answer, the table and the plot, for a terminal."""
    from kvchat.bench.plot import draw
    from kvchat.cli.table import table

    result = outcome.result
    width = min(PLOT_WIDTH, shutil.get_terminal_size().columns)
    parts = [
        f"{outcome.experiment}: {outcome.claim}\n{result.answer}",
        table(result.table),
        draw(result.plot, width, PLOT_HEIGHT, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")),
        "\n".join((*result.notes, outcome.record())),
    ]
    return "\n\n".join(parts)


def _flags(options: Options) -> list[str]:
    """The flags of this run that choose the engine, for a process of kvchat to be given them again."""
    given = {
        "--config": options.config,
        "--model": options.model,
        "--profile": options.profile,
        "--device": options.device,
        "--kv-dtype": options.kv_dtype,
    }
    return [text for flag, value in given.items() if value is not None for text in (flag, str(value))]

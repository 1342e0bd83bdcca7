"""`kvchat bench peers`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvchat.bench.experiments import PEERS
from kvchat.cli.bench.experiment import Asked, output_options, perform, setup_options
from kvchat.cli.options import Options, pass_options

if TYPE_CHECKING:
    from kvchat.bench.experiment import Result, Setup

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PEER_OPTIONS = ("llama_cpp", "ggufs", "quantize", "openvino_python")


def peer_options(command: Callable[..., Any]) -> Any:
    """Where the other engines are."""
    for option in (
        click.option(
            "--openvino-python",
            metavar="FILE",
            type=_FILE,
            default=sys.executable,
            show_default=False,
            help="A Python interpreter that has openvino_genai.",
        ),
        click.option("--quantize", metavar="FILE", type=_FILE, help="A GGUF file to make Q4_0 and Q8_0 of, once."),
        click.option(
            "--gguf", "ggufs", metavar="FILE", multiple=True, type=_FILE, help="The model for peers; repeatable."
        ),
        click.option(
            "--llama-cpp",
            metavar="FOLDER",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Where llama.cpp's programs are, if not on the PATH.",
        ),
    ):
        command = option(command)
    return command


def beside(
    llama_cpp: Path | None,
    ggufs: tuple[Path, ...],
    quantize: Path | None,
    openvino_python: Path,
    rounds: int | None = None,
) -> Callable[[Setup], Result]:
    """The experiment with the peers that the options name."""

    def run(setup: Setup) -> Result:
        from kvchat.bench.experiments import peers
        from kvchat.bench.peers.lineup import Sources

        sources = Sources(
            llama_cpp=llama_cpp, ggufs=ggufs, quantize=quantize, openvino_python=Path(os.path.abspath(openvino_python))
        )
        return peers.run(setup, sources, rounds)

    return run


@click.command("peers", short_help=PEERS.claim)
@setup_options
@click.option(
    "--rounds", metavar="N", type=click.IntRange(min=1), help="Measurements of each figure: 5; with --quick 1."
)
@peer_options
@output_options
@pass_options
def command(
    options: Options,
    rounds: int | None,
    llama_cpp: Path | None,
    ggufs: tuple[Path, ...],
    quantize: Path | None,
    openvino_python: Path,
    **asked: Any,
) -> None:
    """Compare with llama.cpp, OpenVINO GenAI and transformers.

    One run, one machine, the same model, the same number of threads; medians of interleaved rounds. A peer that is
    not installed is left out.
    """
    run = beside(llama_cpp, ggufs, quantize, openvino_python, rounds)
    perform(PEERS, Asked(options=options, **asked), run)

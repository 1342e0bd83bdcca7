"""`kvchat bench peers`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from kvchat.cli.options import Options, pass_options
from kvchat.cli.progress import ProgressLine

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("peers")
@click.option("--rounds", metavar="N", type=click.IntRange(min=1), default=5, help="Measurements of each figure: 5.")
@click.option("--quick", is_flag=True, help="Fewer figures.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every measurement.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Of the random prompts: 0.")
@click.option(
    "--llama-cpp",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where llama.cpp's programs are, if not on the PATH.",
)
@click.option("--gguf", "ggufs", metavar="FILE", multiple=True, type=_FILE, help="The model for peers; repeatable.")
@click.option("--quantize", metavar="FILE", type=_FILE, help="A GGUF file to make Q4_0 and Q8_0 of, once.")
@click.option(
    "--openvino-python",
    metavar="FILE",
    type=_FILE,
    default=sys.executable,
    show_default=False,
    help="A Python interpreter that has openvino_genai.",
)
@pass_options
def command(
    options: Options,
    rounds: int,
    quick: bool,
    as_json: bool,
    seed: int,
    llama_cpp: Path | None,
    ggufs: tuple[Path, ...],
    quantize: Path | None,
    openvino_python: Path,
) -> None:
    """Compare with llama.cpp, OpenVINO GenAI and transformers.

    One run, one machine, the same model, the same number of threads; medians of interleaved rounds. A peer that is
    not installed is left out.
    """
    from kvchat.bench.peers.cells import FULL, QUICK
    from kvchat.bench.peers.compare import compare
    from kvchat.bench.peers.lineup import Sources
    from kvchat.bench.peers.peer import PeerError
    from kvchat.cli.settings import resolve
    from kvchat.cli.table import table

    sources = Sources(
        llama_cpp=llama_cpp, ggufs=ggufs, quantize=quantize, openvino_python=Path(os.path.abspath(openvino_python))
    )
    progress = ProgressLine()
    try:
        report = compare(
            resolve(options).config.engine,
            _flags(options),
            sources,
            QUICK if quick else FULL,
            rounds=rounds,
            seed=seed,
            on_progress=progress.show,
        )
    except PeerError as error:
        raise click.ClickException(str(error)) from None
    finally:
        progress.end()
    if as_json:
        print(json.dumps(report.as_json(), ensure_ascii=False))
        return
    print(table(report.table()))
    print()
    print("\n".join(report.notes()))


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

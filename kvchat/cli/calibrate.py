"""`kvchat calibrate`: choose the formats of the int8 and int4 KV cache for a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvchat.cli.options import TEXT, Options, not_empty, pass_options

if TYPE_CHECKING:
    from engine.calibrate import Outcome, Trial


@click.command("calibrate")
@click.argument("model", metavar="[MODEL]", required=False, type=TEXT, callback=not_empty)
@click.option(
    "--text",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What to read, in place of Python's own English documentation; 4,096 tokens of it are used.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pass_options
def command(options: Options, model: str | None, text: Path | None, as_json: bool) -> None:
    """Choose how a model's KV cache is stored in int8 and in int4.

    Reads a text with every format and keeps, beside the model, the smallest one that loses little; --kv-dtype int8 and
    int4 then use it. Takes a few minutes, once for each model.
    """
    from engine.calibrate import calibrate
    from engine.kv_choice import keep
    from engine.locate import model_folder
    from kvchat.bench.text import english
    from kvchat.cli.progress import ProgressLine
    from kvchat.cli.settings import resolve
    from kvchat.cli.table import table

    config = resolve(replace(options, model=model or options.model)).config.engine
    progress = ProgressLine()
    try:
        outcome = calibrate(
            config,
            english() if text is None else _read(text),
            lambda stage, done: progress.show(f"{stage}: {done:.0%}"),
        )
    finally:
        progress.end()
    kept = keep(model_folder(config.model), outcome.calibration)
    if as_json:
        print(json.dumps(_as_json(outcome)))
    else:
        print(table(_table(outcome)))
        print()
        print("\n".join(_notes(outcome)))
    if not kept:
        raise click.ClickException("the choice could not be kept: neither the model's folder nor the cache is writable")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.ClickException(f"{path}: not a text in UTF-8") from None


def _table(outcome: Outcome) -> list[list[str]]:
    header = ["", "kv_dtype", "format", "bytes/token", "of full", "perplexity", "KL", "top-1"]
    return [header, *(_row(trial, outcome) for trial in outcome.trials)]


def _row(trial: Trial, outcome: Outcome) -> list[str]:
    choice = trial.choice
    return [
        "*" if trial.chosen else "",
        trial.kv_dtype,
        str(choice.format),
        f"{trial.token_bytes:,}",
        f"{trial.token_bytes / outcome.token_bytes:.0%}",
        f"{choice.perplexity:+.2%}",
        f"{choice.divergence:.4f}",
        f"{trial.agreement:.1%}",
    ]


def _notes(outcome: Outcome) -> list[str]:
    notes = [
        f"read: {outcome.calibration.tokens:,} tokens; a full-precision cache takes {outcome.token_bytes:,} bytes a "
        f"token and has a perplexity of {outcome.perplexity:.3f}",
        "* the smallest format that loses little enough; --kv-dtype uses it from now on",
    ]
    failed = [trial for trial in outcome.trials if trial.chosen and not trial.passed]
    return notes + [
        f"no {trial.kv_dtype} format loses little enough on this model: the most faithful was chosen, and kvchat warns"
        for trial in failed
    ]


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "tokens": outcome.calibration.tokens,
        "perplexity": outcome.perplexity,
        "token_bytes": outcome.token_bytes,
        "trials": [
            {
                "kv_dtype": trial.kv_dtype,
                "keys": trial.choice.keys._asdict(),
                "values": trial.choice.values._asdict(),
                "token_bytes": trial.token_bytes,
                "perplexity_increase": trial.choice.perplexity,
                "divergence": trial.choice.divergence,
                "agreement": trial.agreement,
                "passed": trial.passed,
                "chosen": trial.chosen,
            }
            for trial in outcome.trials
        ],
    }

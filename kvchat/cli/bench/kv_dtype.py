"""`kvchat bench kv-dtype`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from kvchat.cli.options import Options, pass_options
from kvchat.cli.progress import ProgressLine


@click.command("kv-dtype")
@click.option("--quick", is_flag=True, help="Shorter contexts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every measurement.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Of the planted facts: 0.")
@pass_options
def command(options: Options, quick: bool, as_json: bool, seed: int) -> None:
    """Compare an int8 and an int4 KV cache with a full-precision one.

    Memory, loss over long contexts, facts found again, a conversation replayed, speed of decoding: with the formats
    that kvchat calibrate chose for the model, or else the usual ones.
    """
    from kvchat.bench.kv_dtype.compare import compare
    from kvchat.bench.kv_dtype.plan import FULL, QUICK
    from kvchat.bench.kv_dtype.report import sentences, tables
    from kvchat.bench.machine import cpu_name
    from kvchat.cli.settings import resolve
    from kvchat.cli.table import table

    progress = ProgressLine()
    try:
        report = compare(
            resolve(options).config.engine,
            QUICK if quick else FULL,
            seed,
            lambda stage, done: progress.show(f"{stage}: {done:.0%}"),
        )
    finally:
        progress.end()
    if as_json:
        print(json.dumps({"cpu": cpu_name()} | asdict(report)))
        return
    for title, rows in tables(report).items():
        print(f"{title}\n\n{table(rows)}\n")
    print("\n".join(sentences(report)))
    print(f"{report.model} on {cpu_name()}, seed {seed}")

"""`kvchat plan`: how much memory conversations take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from kvchat.cli.options import Options, kv_dtype_option, model_option, pass_options

if TYPE_CHECKING:
    from kvchat.bench.memory_plan import Need
    from kvchat.bench.plan_report import PlanReport


MOST = 1_000_000_000
"""Of what may be asked for."""


@click.command("plan")
@model_option
@click.option(
    "--context", metavar="N", type=click.IntRange(1, MOST), help="Tokens of each conversation: the model's most."
)
@click.option("--conversations", metavar="N", type=click.IntRange(1, MOST), default=1, help="At the same time: 1.")
@kv_dtype_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pass_options
def command(
    options: Options, model: str | None, context: int | None, conversations: int, kv_dtype: str | None, as_json: bool
) -> None:
    """Show the memory that a model and its KV cache take, what fits here, and which profile is for it.

    The model is not loaded. Scales and offsets of int8 and int4 are counted.
    """
    from kvchat.bench.plan_report import survey
    from kvchat.cli.settings import resolve

    flagged = replace(options, model=model or options.model, kv_dtype=kv_dtype or options.kv_dtype)
    report = survey(resolve(flagged).config.engine, context, conversations)
    print(json.dumps(report.as_json()) if as_json else _text(report))


def _text(report: PlanReport) -> str:
    from kvchat.cli.table import table
    from kvchat.profiles import PROFILES

    shape, planned, weights = report.shape, report.plan, report.weights
    rows = [
        ("", "CONTEXT", "CONVERSATIONS", "KV CACHE"),
        _row("asked", planned.need),
        *(_row("", need) for need in planned.table),
    ]
    held = f"{'at most ' * weights.is_bound}{_size(weights.step_bytes)} read by each step"
    if weights.embedding_bytes:
        held += f", {_size(weights.embedding_bytes)} of embeddings"
    per_head = planned.token_bytes // (shape.n_layer * shape.n_kv_head)
    fits = report.needed_bytes <= report.free_bytes
    room = f", with room for {_conversations(report.most)} in a larger engine.kv_memory" if fits else ": too little"
    bound = "more wait their turn"
    if report.max_sequences < planned.fitting:
        bound = f"engine.max_sequences lets {report.max_sequences:,} run, {bound}"
    return "\n".join(
        (
            f"{report.model}: weights in memory {held}; files of {_size(report.weight_file_bytes)}",
            f"KV cache in {report.kv_format}",
            *([f"  warning   {report.kv_warning}"] if report.kv_warning else ()),
            f"  formula   {planned.token_bytes:,} bytes a token: {shape.n_layer} layers x {shape.n_kv_head} KV heads x "
            f"{per_head} bytes for a key and a value of {shape.head_dim}",
            f"  measured  {report.measured_token_bytes:,.0f} bytes a token, of a pool filled here",
            "",
            table(rows),
            "",
            f"The pool here, {_size(planned.pool_bytes)}, holds {_conversations(planned.fitting)} of "
            f"{planned.need.context:,} tokens at once; {bound}.",
            f"Weights and what was asked for take {_size(report.needed_bytes)}; "
            f"{_size(report.free_bytes)} are free{room}.",
            f"Profile: {report.profile}, for {PROFILES[report.profile].pattern}: {report.reason}.",
        )
    )


def _conversations(count: int) -> str:
    return f"{count:,} conversation{'s' * (count != 1)}"


def _row(label: str, need: Need) -> tuple[str, str, str, str]:
    return label, f"{need.context:,}", f"{need.conversations:,}", _size(need.kv_bytes)


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"

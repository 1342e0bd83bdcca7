"""`kvchat plan`: how much memory conversations take."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from kvchat.cli.options import Options, kv_dtype_option, not_empty, pass_options

if TYPE_CHECKING:
    from engine.model.config import ModelConfig
    from kernels.kv_format import KVFormat
    from kvchat.bench.memory_plan import MemoryPlan, Need


@click.command("plan")
@click.option("--model", metavar="NAME", callback=not_empty, help="An installed model, or the path of a model folder.")
@click.option(
    "--context", metavar="N", type=click.IntRange(min=1), help="Tokens of each conversation: the model's most."
)
@click.option("--conversations", metavar="N", type=click.IntRange(min=1), default=1, help="At the same time: 1.")
@kv_dtype_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@pass_options
def command(
    options: Options, model: str | None, context: int | None, conversations: int, kv_dtype: str | None, as_json: bool
) -> None:
    """Show the memory that the KV cache of a model takes, and what fits here.

    Arithmetic only: the model is not loaded. Scales and offsets of int8 and int4 are counted.
    """

    from engine.device import compute_dtype, find_device
    from engine.kv_cache import default_cap
    from engine.kv_choice import choose_format
    from engine.locate import model_folder
    from engine.model.config import ModelConfig
    from kvchat.bench.memory_plan import plan
    from kvchat.catalogue.folder import weight_files
    from kvchat.cli.settings import resolve

    flagged = replace(options, model=model or options.model, kv_dtype=kv_dtype or options.kv_dtype)
    config = resolve(flagged).config.engine
    folder, device = model_folder(config.model), find_device(config.device)
    shape = ModelConfig.read(folder)
    compute = compute_dtype(config.dtype, device)
    format, _ = choose_format(config.kv_dtype, shape, folder, compute)
    weights = sum(file.stat().st_size for file in weight_files(folder))
    pool = default_cap(device, weights) if config.kv_memory is None else config.kv_memory
    planned = plan(
        shape, format, context or config.context_length or shape.context_length, conversations, pool, config.block_size
    )
    if as_json:
        print(
            json.dumps(
                {"model": str(config.model), "kv_format": str(format), "weight_file_bytes": weights} | asdict(planned)
            )
        )
    else:
        print(_text(str(config.model), shape, format, weights, planned))


def _text(name: str, model: ModelConfig, format: KVFormat, weights: int, plan: MemoryPlan) -> str:
    from kvchat.cli.table import table

    rows = [("", "CONTEXT", "CONVERSATIONS", "KV CACHE"), _row("asked", plan.need), *(_row("", n) for n in plan.table)]
    return "\n".join(
        (
            f"{name}: weight files of {_size(weights)}; KV cache in {format}",
            f"{plan.token_bytes:,} bytes a token: {model.n_layer} layers x {model.n_kv_head} KV heads x "
            f"{plan.token_bytes // (model.n_layer * model.n_kv_head)} bytes for a key and a value of {model.head_dim}",
            "",
            table(rows),
            "",
            f"The pool here, {_size(plan.pool_bytes)}, holds {plan.fitting:,} conversations of "
            f"{plan.need.context:,} tokens at once; more wait their turn.",
        )
    )


def _row(label: str, need: Need) -> tuple[str, str, str, str]:
    return label, f"{need.context:,}", f"{need.conversations:,}", _size(need.kv_bytes)


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"

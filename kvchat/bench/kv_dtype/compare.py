"""The whole comparison, from what the user asked for to the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from engine.config import EngineConfig
from engine.engine import Engine
from engine.kv_choice import GATES, choose_format
from engine.locate import model_folder
from engine.quality import load_to_read
from engine.tokenizer import Tokenizer
from kvchat.bench.decoding import decode_rates
from kvchat.bench.figures import ratio
from kvchat.bench.kv_dtype.plan import ROOM, Plan
from kvchat.bench.kv_dtype.quality import losses, needles
from kvchat.bench.kv_dtype.report import Column, Report
from kvchat.bench.kv_dtype.running import TURNS, first_difference, replay
from kvchat.bench.text import english


def compare(config: EngineConfig, plan: Plan, seed: int, on_progress: Callable[[str, float], None]) -> Report:
    """Raises EngineError when the model cannot be loaded or does not fit."""
    folder = model_folder(config.model)
    runner = load_to_read(folder, config, on_progress)
    plan = plan.within(runner.info.context_length)
    longest = max((ROOM, *plan.windows, *plan.needles))
    formats = {"auto": runner.kv_format} | {
        kv_dtype: choose_format(kv_dtype, runner.config, folder, runner.dtype)[0] for kv_dtype in GATES
    }
    twins = [runner.with_cache(format, longest) for format in formats.values()]
    columns = {
        kv_dtype: Column(str(format), twin.info.kv_token_bytes, twin.pool_bytes / (twin.num_blocks * twin.block_size))
        for (kv_dtype, format), twin in zip(formats.items(), twins, strict=True)
    }
    report = Report(runner.info.name, runner.info.context_length, plan, seed, columns)
    tokenizer = Tokenizer(folder)
    text = tokenizer.encode(english())[:longest]
    for context in plan.windows:
        found = losses(twins, text, context, lambda done, n=context: on_progress(f"reading {n:,} tokens", done))  # type: ignore[misc]
        for kv_dtype, loss in zip(GATES, found, strict=True):
            columns[kv_dtype].losses.append(loss)
    for context in plan.needles:
        for number, (column, twin) in enumerate(zip(columns.values(), twins, strict=True)):
            on_progress(f"asking behind {context:,} tokens", number / len(twins))
            column.needles.append(needles(twin, tokenizer.encode, text, context, seed))
    # Weights as exact as those that read: otherwise their rounding would soon lead every conversation elsewhere.
    exact = "int8" if runner.info.weights == "int8" else config.weights
    del runner, twins
    on_progress("replaying a conversation", 0.0)
    replaying = msgspec.structs.replace(config, weights=exact)
    conversations = [replay(engine, TURNS[: plan.turns]) for engine in _engines(replaying, report)]
    for column, conversation in zip(columns.values(), conversations, strict=True):
        column.first_difference = first_difference(conversations[0], conversation)
    engines = list(_engines(config, report))
    for context in plan.decode:
        rates = decode_rates(
            engines,
            tuple(text[:context]),
            plan.rounds,
            lambda done, n=context: on_progress(f"decoding behind {n:,} tokens", done),  # type: ignore[misc]
        )
        for column, mine in zip(columns.values(), rates, strict=True):
            column.rates.append(mine)
            column.ratios.append(ratio(mine, rates[0]))
    return report


def _engines(config: EngineConfig, report: Report) -> Iterator[Engine]:
    """One for each format, with room for the longest prompt and a conversation."""
    room = max((ROOM, *report.plan.decode)) + 8 * ROOM
    for kv_dtype, column in report.columns.items():
        settings = {"kv_dtype": kv_dtype, "kv_memory": room * column.token_bytes}
        yield Engine(msgspec.structs.replace(config, **settings))

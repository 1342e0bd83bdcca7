"""The memory of keys and values, and the time that reading them takes, by the number of KV heads."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import msgspec

from engine.device import find_device
from engine.engine import Engine
from engine.locate import model_folder
from kvchat.bench.decoding import STEPS, decode_rates
from kvchat.bench.draw import Draw
from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.figures import number, ratio, spread
from kvchat.bench.plot import Plot, Series
from kvchat.bench.variants import kv_heads, write_variant
from kvchat.catalogue.folder import weight_files

CONTEXT, QUICK_CONTEXT = 4096, 2048
QUICK_LAYERS = 8
ROUNDS, QUICK_ROUNDS = 7, 3
MIB = 1 << 20
COPIES = 3
"""Of the weights that lie on the disk at the same time, at most: as they are made, packed, and packed once more."""


def run(setup: Setup) -> Result:
    """Raises LeftOut where there is no room for a copy of the model."""
    find_device(setup.config.device)  # before anything is written
    source, model = model_folder(setup.config.model), setup.model()
    weights = sum(path.stat().st_size for path in weight_files(source))
    if COPIES * weights > shutil.disk_usage(gettempdir()).free:
        raise LeftOut(f"{gettempdir()} has no room for {COPIES} times the {weights / MIB:,.0f} MiB of the weights")
    heads = kv_heads(model)
    layers = min(QUICK_LAYERS, model.n_layer) if setup.quick else model.n_layer
    rounds = QUICK_ROUNDS if setup.quick else ROUNDS
    room = (rounds + 2) * STEPS
    context = min(
        QUICK_CONTEXT if setup.quick else CONTEXT, (setup.config.context_length or model.context_length) - room
    )
    if context < room:
        raise LeftOut("the context of the model is too short to decode behind")
    engines: dict[str, Engine] = {}
    for done, (kind, count) in enumerate(heads.items()):
        setup.progress(f"making {kind}", done / len(heads))
        with TemporaryDirectory(prefix="kvchat-") as scratch:
            folder = Path(scratch) / kind
            folder.mkdir()
            write_variant(source, folder, count, layers, setup.seed)
            variant = replace(setup, config=msgspec.structs.replace(setup.config, model=folder))
            engines[kind] = variant.engine(kv_memory=variant.kv_bytes(context + 2 * room))
    prompt = tuple(Draw(str(setup.seed), model.vocab_size)(context))
    measured = decode_rates(
        list(engines.values()), prompt, rounds, lambda done: setup.progress(f"decoding behind {context:,} tokens", done)
    )
    rates = dict(zip(engines, measured, strict=True))
    notes = [f"random weights in the shape of {source.resolve().name}, {layers} of its {model.n_layer} layers"]
    return _result(engines, heads, rates, context, notes)


def _result(
    engines: dict[str, Engine], heads: dict[str, int], rates: dict[str, list[float]], context: int, notes: list[str]
) -> Result:
    pools = {kind: engine.snapshot().pool for kind, engine in engines.items()}
    token_bytes = {kind: pool.block_bytes // pool.block_size for kind, pool in pools.items()}
    conversation = {kind: -(-context // pool.block_size) * pool.block_bytes for kind, pool in pools.items()}
    ms = {kind: [1000 / rate for rate in mine] for kind, mine in rates.items()}
    memory = {kind: token_bytes[kind] / token_bytes["MHA"] for kind in engines}
    time = {kind: ratio(rates["MHA"], mine) for kind, mine in rates.items()}
    grouped = "GQA" if "GQA" in engines else "MQA"
    answer = (
        f"With {heads[grouped]} KV heads instead of {heads['MHA']} a token's keys and values take "
        f"{token_bytes[grouped]:,} bytes instead of {token_bytes['MHA']:,}, {memory[grouped]:.0%} as by the formula, "
        f"and a token behind {context:,} is decoded in {time[grouped]:.0%} of the time"
    )
    if grouped == "GQA":
        answer += f"; with one (MQA) in {memory['MQA']:.0%} of the memory and {time['MQA']:.0%} of the time"
    rows = [["", "KV heads", "bytes a token", f"MiB for {context:,}", "of MHA", "ms a token", "of MHA"]]
    for kind, engine in engines.items():
        if engine.info.kv_token_bytes != token_bytes[kind]:
            notes.append(f"{kind}: the formula says {engine.info.kv_token_bytes:,} bytes a token")
        rows.append(
            [
                kind,
                str(heads[kind]),
                f"{token_bytes[kind]:,}",
                number(conversation[kind] / MIB),
                f"{memory[kind]:.0%}",
                spread(ms[kind]),
                f"{time[kind]:.0%}",
            ]
        )
    places = [f"{kind}, {heads[kind]}" for kind in engines]
    return Result(
        answer=f"{answer}.",
        table=rows,
        plot=Plot(
            x="KV heads",
            y="% of MHA",
            kind="bars",
            series=[
                Series("KV memory", places, [100 * share for share in memory.values()]),
                Series(f"time of a token behind {context:,}", places, [100 * share for share in time.values()]),
            ],
        ),
        ratios={f"KV bytes, {kind} / MHA": share for kind, share in memory.items() if kind != "MHA"}
        | {f"time of a token, {kind} / MHA": share for kind, share in time.items() if kind != "MHA"},
        measured={
            "context": context,
            "kv_heads": heads,
            "token_bytes": token_bytes,
            "token_bytes_by_formula": {kind: engine.info.kv_token_bytes for kind, engine in engines.items()},
            "conversation_bytes": conversation,
            "tokens_per_s": rates,
        },
        notes=notes,
    )

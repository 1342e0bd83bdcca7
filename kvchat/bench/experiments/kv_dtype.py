"""An int8 and an int4 KV cache beside a full-precision one, over long contexts."""

from __future__ import annotations

from dataclasses import asdict

from kvchat.bench.experiment import LeftOut, Result, Setup
from kvchat.bench.kv_dtype.compare import compare
from kvchat.bench.kv_dtype.plan import FULL, QUICK
from kvchat.bench.kv_dtype.report import answer, plot, table


def run(setup: Setup) -> Result:
    """Raises LeftOut for a model with a very short context."""
    report = compare(setup.config, QUICK if setup.quick else FULL, setup.seed, setup.progress)
    if not report.plan.windows:
        raise LeftOut(f"the context of {report.context_length} tokens is too short to read a text in")
    columns = report.columns
    return Result(
        answer=answer(report),
        table=table(report),
        plot=plot(report),
        ratios={
            f"KV bytes, {kv_dtype} / auto": column.token_bytes / columns["auto"].token_bytes
            for kv_dtype, column in columns.items()
            if kv_dtype != "auto"
        },
        measured=asdict(report),
        notes=["with the formats that kvchat calibrate chose for the model, or else the usual ones"],
    )

"""What was measured, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from engine.kv_choice import GATES
from kvchat.bench.experiment import Table
from kvchat.bench.figures import spread
from kvchat.bench.kv_dtype.plan import Plan
from kvchat.bench.kv_dtype.quality import Found, Loss
from kvchat.bench.plot import Plot, Series


@dataclass(slots=True)
class Column:
    """One `kv_dtype`, measured."""

    format: str
    token_bytes: int
    """By the formula."""
    pool_token_bytes: float
    """Of the pool's memory, divided by the tokens that it holds."""
    losses: list[Loss] = field(default_factory=list)
    """Empty for auto, which the others are compared with."""
    needles: list[Found] = field(default_factory=list)
    first_difference: int | None = None
    """The turn in which the replayed conversation is another than auto's."""
    rates: list[list[float]] = field(default_factory=list)
    """Tokens per second in each round, for each context."""
    ratios: list[float] = field(default_factory=list)
    """Of the rates to auto's, the median over the rounds."""


@dataclass(slots=True)
class Report:
    model: str
    context_length: int
    plan: Plan
    seed: int
    columns: dict[str, Column]


def table(report: Report) -> Table:
    """A column for each `kv_dtype`, what was measured below each other."""
    columns = report.columns
    auto = columns["auto"].token_bytes
    rows = [
        ["", *columns],
        ["format", *(column.format for column in columns.values())],
        ["bytes per token, by the formula", *(f"{column.token_bytes:,}" for column in columns.values())],
        ["bytes per token, of the pool", *(f"{column.pool_token_bytes:,.0f}" for column in columns.values())],
        ["of auto", *(f"{column.token_bytes / auto:.0%}" for column in columns.values())],
    ]
    for index, context in enumerate(report.plan.windows):
        losses = [columns[kv_dtype].losses[index] for kv_dtype in GATES]
        rows += [
            [f"perplexity, windows of {context:,}", "", *(f"{loss.perplexity:+.3%}" for loss in losses)],
            ["  KL of all, of the last eighth", "", *(_divergences(loss) for loss in losses)],
            ["  likeliest token the same", "", *(f"{loss.agreement:.1%}" for loss in losses)],
        ]
    for index, context in enumerate(report.plan.needles):
        found = [column.needles[index] for column in columns.values()]
        cells = [f"{each.right} of {each.asked}, {each.log_probability:.2f}" for each in found]
        rows.append([f"facts found behind {context:,}, log p", *cells])
    turns = [column.first_difference for column in columns.values()]
    rows.append(
        [
            "first other reply of a conversation",
            *(f"turn {turn}" if turn else f"none in {report.plan.turns}" for turn in turns),
        ]
    )
    for index, context in enumerate(report.plan.decode):
        cells = [f"{spread(column.rates[index])}, {column.ratios[index]:.2f}x" for column in columns.values()]
        rows.append([f"decode behind {context:,}, tokens/s", *cells])
    return rows


def _divergences(loss: Loss) -> str:
    return f"{loss.divergence:.5f}, {loss.late_divergence:.5f}"


def plot(report: Report) -> Plot:
    """How the loss goes with the context."""
    return Plot(
        x="context, tokens",
        y="perplexity, % more than auto",
        series=[
            Series(kv_dtype, report.plan.windows, [100 * loss.perplexity for loss in report.columns[kv_dtype].losses])
            for kv_dtype in GATES
        ],
    )


def answer(report: Report) -> str:
    """What the figures say, in one sentence."""
    said = []
    for kv_dtype in GATES:
        column = report.columns[kv_dtype]
        text = f"{kv_dtype} takes {column.token_bytes / report.columns['auto'].token_bytes:.0%} of the memory"
        if column.losses:
            gate = GATES[kv_dtype]
            perplexity = max(abs(loss.perplexity) for loss in column.losses)
            divergence = max(loss.divergence for loss in column.losses)
            text += f" and changes perplexity by {perplexity:.2%} at most, {_verdict(perplexity, gate.perplexity)} "
            text += f"its limit of {gate.perplexity:.1%}"
            if isfinite(gate.divergence):
                text += f", with a KL of {divergence:.4f}, {_verdict(divergence, gate.divergence)} its limit of "
                text += f"{gate.divergence:.4f}"
        said.append(text)
    return "; ".join(said) + "."


def _verdict(value: float, limit: float) -> str:
    return "within" if value <= limit else "more than"

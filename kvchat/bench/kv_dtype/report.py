"""What was measured, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from engine.kv_choice import GATES
from kvchat.bench.kv_dtype.plan import Plan
from kvchat.bench.kv_dtype.quality import Found, Loss


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

    def failed(self, kv_dtype: str) -> list[Loss]:
        """Where a format loses more than its gate allows."""
        gate = GATES[kv_dtype]
        return [
            loss
            for loss in self.columns[kv_dtype].losses
            if loss.perplexity > gate.perplexity or loss.divergence > gate.divergence
        ]


Table = list[list[str]]
"""Rows of cells, the header first."""


def tables(report: Report) -> dict[str, Table]:
    """By their titles."""
    return {
        "memory": _memory(report),
        "against auto, over a text of English": _losses(report),
        "long-context memory": _needles(report),
        "a greedy conversation, replayed": _replay(report),
        "speed, medians of interleaved rounds": _speed(report),
    }


def _memory(report: Report) -> Table:
    columns, auto = report.columns.values(), report.columns["auto"].token_bytes
    return [
        ["", *report.columns],
        ["format", *(column.format for column in columns)],
        ["bytes per token, by the formula", *(f"{column.token_bytes:,}" for column in columns)],
        ["bytes per token, of the pool", *(f"{column.pool_token_bytes:,.0f}" for column in columns)],
        ["of auto", *(f"{column.token_bytes / auto:.0%}" for column in columns)],
    ]


def _losses(report: Report) -> Table:
    measures = ("perplexity", "KL", "KL at the end", "top-1")
    rows = [["context", *(f"{kv_dtype} {measure}" for kv_dtype in GATES for measure in measures)]]
    for index, context in enumerate(report.plan.windows):
        row = [f"{context:,}"]
        for kv_dtype in GATES:
            loss = report.columns[kv_dtype].losses[index]
            row += [f"{loss.perplexity:+.3%}", f"{loss.divergence:.5f}", f"{loss.late_divergence:.5f}"]
            row.append(f"{loss.agreement:.1%}")
        rows.append(row)
    return rows


def _needles(report: Report) -> Table:
    rows = [["ten facts, asked for at the end of", *report.columns]]
    for index, context in enumerate(report.plan.needles):
        found = [column.needles[index] for column in report.columns.values()]
        cells = [f"{each.right} of {each.asked} right, log p {each.log_probability:.2f}" for each in found]
        rows.append([f"{context:,} tokens", *cells])
    return rows


def _replay(report: Report) -> Table:
    turns = [column.first_difference for column in report.columns.values()]
    cells = [f"turn {turn}" if turn else f"none in {report.plan.turns}" for turn in turns]
    return [["", *report.columns], ["first other reply", *cells]]


def _speed(report: Report) -> Table:
    rows = [["decode, tokens/s", *report.columns]]
    for index, context in enumerate(report.plan.decode):
        columns = report.columns.values()
        cells = [f"{median(column.rates[index]):.0f} ({column.ratios[index]:.2f}x)" for column in columns]
        rows.append([f"at {context:,}", *cells])
    return rows


def sentences(report: Report) -> list[str]:
    """What the figures say."""
    said = []
    for kv_dtype in GATES:
        column = report.columns[kv_dtype]
        share = column.token_bytes / report.columns["auto"].token_bytes
        worst = max(column.losses, key=lambda loss: loss.perplexity, default=None)
        text = f"{kv_dtype}: {share:.0%} of the memory"
        if worst is not None:
            text += f", perplexity {worst.perplexity:+.2%} at most"
            gate = f"{GATES[kv_dtype].perplexity:.1%}"
            text += f"; {'above' if report.failed(kv_dtype) else 'within'} its gate of {gate}"
        said.append(text)
    return said

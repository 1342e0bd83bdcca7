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


def tables(report: Report) -> list[tuple[str, list[list[str]]]]:
    """A title and rows each, the header first."""
    plan, names = report.plan, list(report.columns)
    columns = report.columns.values()
    auto = report.columns["auto"].token_bytes
    found = [
        (
            "memory",
            [
                ["", *names],
                ["format", *(column.format for column in columns)],
                ["bytes per token, by the formula", *(f"{column.token_bytes:,}" for column in columns)],
                ["bytes per token, of the pool", *(f"{column.pool_token_bytes:,.0f}" for column in columns)],
                ["of auto", *(f"{column.token_bytes / auto:.0%}" for column in columns)],
            ],
        )
    ]
    rows = [
        ["context", *(f"{name} {what}" for name in GATES for what in ("perplexity", "KL", "KL at the end", "top-1"))]
    ]
    for index, context in enumerate(plan.windows):
        row = [f"{context:,}"]
        for name in GATES:
            loss = report.columns[name].losses[index]
            row += [
                f"{loss.perplexity:+.3%}",
                f"{loss.divergence:.5f}",
                f"{loss.late_divergence:.5f}",
                f"{loss.agreement:.1%}",
            ]
        rows.append(row)
    found.append(("against auto, over a text of English", rows))
    rows = [["ten facts, asked for at the end of", *names]]
    for index, context in enumerate(plan.needles):
        answers = [column.needles[index] for column in columns]
        rows.append(
            [f"{context:,} tokens", *(f"{c.right} of {c.asked} right, log p {c.log_probability:.2f}" for c in answers)]
        )
    turn = [f"turn {c.first_difference}" if c.first_difference else f"none in {plan.turns}" for c in columns]
    found.append(("long-context memory", rows))
    found.append(("a greedy conversation, replayed", [["", *names], ["first other reply", *turn]]))
    rows = [["decode, tokens/s", *names]]
    for index, context in enumerate(plan.decode):
        cells = [f"{median(c.rates[index]):.0f} ({c.ratios[index]:.2f}x)" for c in columns]
        rows.append([f"at {context:,}", *cells])
    found.append(("speed, medians of interleaved rounds", rows))
    return found


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

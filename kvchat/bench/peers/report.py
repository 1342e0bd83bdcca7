"""The result of a comparison, and how it is shown."""

from __future__ import annotations

from statistics import median
from typing import Any

import msgspec

from kvchat.bench.figures import number
from kvchat.bench.plot import Plot, Series


class Row(msgspec.Struct):
    """One cell. `values` are the measurements of each engine, a value per round."""

    name: str
    unit: str
    higher_is_better: bool
    values: dict[str, list[float]]
    bandwidth_fraction: float | None = None
    """Of kvchat's decode: the time that reading its weights and KV from memory takes, over the time that it took."""

    def median(self, engine: str) -> float | None:
        values = self.values.get(engine)
        return median(values) if values else None

    def ratio(self, engine: str, peer: str) -> float | None:
        """How many times better the engine is than the peer; above 1 it is faster, or smaller."""
        mine, theirs = self.median(engine), self.median(peer)
        if mine is None or theirs is None:
            return None
        return mine / theirs if self.higher_is_better else theirs / mine


class Failure(msgspec.Struct, frozen=True):
    engine: str
    cell: str
    error: str


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int
    threads: int
    """What every engine used."""
    memory_bytes: int
    bandwidth_bytes_per_s: float
    """Read from memory by that many threads: the median of one measurement per round."""


class Report(msgspec.Struct):
    machine: Machine
    model: str
    seed: int
    rounds: int
    engines: dict[str, str]
    """Names and versions; kvchat is the first."""
    rows: list[Row]
    failures: list[Failure]
    missing: dict[str, str]
    """Names of the peers that took no part, and why."""
    left_out: list[str]
    """Cells that are longer than the model's context."""

    def as_json(self) -> dict[str, Any]:
        """Everything measured, with the medians and ratios of the table."""
        first, *peers = self.engines
        plain = msgspec.to_builtins(self)
        for row, shown in zip(self.rows, plain["rows"], strict=True):
            shown["medians"] = {engine: row.median(engine) for engine in self.engines}
            shown["ratios"] = {peer: row.ratio(first, peer) for peer in peers}
        return plain

    def table(self) -> list[list[str]]:
        """Rows of cells, the header first: kvchat, then each peer with how many times better kvchat is."""
        first, *peers = self.engines
        header = ["", "", first, "of bandwidth"]
        for peer in peers:
            header += [peer, "ratio"]
        body = []
        for row in self.rows:
            fraction = "" if row.bandwidth_fraction is None else f"{100 * row.bandwidth_fraction:.0f} %"
            line = [row.name, row.unit, _shown(row.median(first)), fraction]
            for peer in peers:
                ratio = row.ratio(first, peer)
                line += [_shown(row.median(peer)), "" if ratio is None else f"{ratio:.2f}x"]
            body.append(line)
        return [header, *body]

    def notes(self) -> list[str]:
        """What the table does not say, a line each."""
        machine = self.machine
        lines = [
            f"{machine.cpu}, {machine.threads} threads on {machine.cores} cores, reads "
            f"{machine.bandwidth_bytes_per_s / 1e9:.1f} GB/s; {machine.memory_bytes / 1e9:.0f} GB of memory",
            f"{self.model}; medians; rounds: {self.rounds}, after a warming one; seed: {self.seed}",
            "ratio: how many times better kvchat is; above 1 it is faster, or takes less memory",
            *(f"{name}: {version}" for name, version in self.engines.items()),
            *(f"{failure.engine}: {failure.cell}: {failure.error}" for failure in self.failures),
            *(f"{name}: {why}" for name, why in self.missing.items()),
        ]
        if self.left_out:
            lines.append(f"left out, longer than the model's context: {'; '.join(self.left_out)}")
        return lines


def _shown(value: float | None) -> str:
    return "-" if value is None else number(value)


def plot(report: Report) -> Plot:
    """The rates of decoding, of those who were measured in every one."""
    rows = [row for row in report.rows if row.name.startswith("decode")]
    medians = {engine: [row.median(engine) for row in rows] for engine in report.engines}
    return Plot(
        x="sequences x tokens of context",
        y="decoded tokens/s",
        kind="bars",
        series=[
            Series(engine, [row.name.removeprefix("decode, ") for row in rows], [value or 0.0 for value in values])
            for engine, values in medians.items()
        ],
    )


def answer(report: Report) -> str:
    """How kvchat stands to each peer, in one sentence."""
    first, *peers = report.engines
    said = []
    for peer in peers:
        ratios = {row.name: ratio for row in report.rows if (ratio := row.ratio(first, peer)) is not None}
        if ratios:
            worst, best = (choose(ratios, key=ratios.__getitem__) for choose in (min, max))
            said.append(
                f"{peer} ({median(ratios.values()):.1f} times as a median, from {ratios[worst]:.2f} at {worst} to "
                f"{ratios[best]:.1f} at {best})"
            )
    if not said:
        return "No other engine was measured."
    return f"How many times better {first} is than its peers: {'; '.join(said)}."

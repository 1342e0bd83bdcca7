"""The report of many experiments: one Markdown file, with a plot and the measurements of each beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvchat.bench.experiment import Experiment, Outcome, Table
from kvchat.bench.plot import save


class Report:
    """Written anew after each experiment, so that what was measured is kept when one of them goes wrong.

    What adds to it returns the line that stands for the experiment in the overview. Raises OSError where the folder
    cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "report.md"
        self.failures: list[str] = []
        self._sections: list[str] = []
        self._answers: list[tuple[str, str]] = []

    def add(self, outcome: Outcome) -> str:
        name = outcome.experiment
        save(outcome.result.plot, self.path.with_name(f"{name}.svg"), "svg", outcome.claim)
        text = json.dumps(outcome.as_json(), ensure_ascii=False, indent=1)
        self.path.with_name(f"{name}.json").write_text(text, encoding="utf-8")
        return self._write(name, outcome.result.answer, "\n".join(_section(outcome)))

    def left_out(self, experiment: Experiment, reason: str) -> str:
        return self._write(experiment.name, f"Left out: {reason}.", "")

    def failed(self, experiment: Experiment, reason: str) -> str:
        self.failures.append(experiment.name)
        return self._write(experiment.name, f"Failed: {reason}.", "")

    def _write(self, name: str, answer: str, section: str) -> str:
        self._answers.append((name, answer))
        self._sections += [section] if section else []
        head = "\n".join(markdown([["experiment", "answer"], *self._answers]))
        self.path.write_text("\n\n".join(("# kvchat: experiments", head, *self._sections)) + "\n", encoding="utf-8")
        return answer


def _section(outcome: Outcome) -> Iterator[str]:
    result = outcome.result
    quick = " --quick" if outcome.quick else ""
    yield from (f"## {outcome.experiment}", "", f"*{outcome.claim}*", "", result.answer, "")
    yield from (f"![{outcome.claim}]({outcome.experiment}.svg)", "", *markdown(result.table), "")
    yield from (f"- {name}: {ratio:.3g}" for name, ratio in result.ratios.items())
    yield from ("", *(f"{note}\\" for note in result.notes))
    yield f"`kvchat bench {outcome.experiment}{quick} --model {outcome.model} --seed {outcome.seed}`\\"
    yield outcome.record()


def markdown(table: Table) -> Iterator[str]:
    """A table in Markdown, its first row the head."""
    head, *rows = table
    yield from (_row(head), "|" + "---|" * len(head), *map(_row, rows))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

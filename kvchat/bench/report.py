"""The report of many experiments: one Markdown file, with a plot and the measurements of each beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvchat.bench.experiment import Outcome, Table
from kvchat.bench.plot import save


class ReportExists(Exception):
    """The folder holds a report; the message is one line that says what to do."""


class Report:
    """Written anew after each experiment, so that what was measured is kept when one of them goes wrong."""

    def __init__(self, folder: Path) -> None:
        """Try to write. Raises ReportExists, and OSError where the folder cannot be written."""
        self.path = folder / "report.md"
        self._sections: list[str] = []
        self._answers: list[tuple[str, str]] = []
        if self.path.exists():
            raise ReportExists(f"{self.path} is there, and two runs would be mixed in it: choose an empty folder")
        folder.mkdir(parents=True, exist_ok=True)
        self._write()

    def add(self, experiment: str, answer: str, outcome: Outcome | None = None) -> None:
        """What stands for an experiment in the overview and, where there is an outcome, its section and files. Raises
        OSError; what could not be written is in the report again the next time."""
        self._answers.append((experiment, answer))
        if outcome is not None:
            self._sections.append("\n".join(_section(outcome)))
            save(outcome.result.plot, self.path.with_name(f"{experiment}.svg"), "svg", outcome.claim)
            text = json.dumps(outcome.as_json(), ensure_ascii=False, indent=1)
            self.path.with_name(f"{experiment}.json").write_text(text, encoding="utf-8")
        self._write()

    def _write(self) -> None:
        head = "\n".join(markdown([["experiment", "answer"], *self._answers]))
        self.path.write_text("\n\n".join(("# kvchat: experiments", head, *self._sections)) + "\n", encoding="utf-8")


def _section(outcome: Outcome) -> Iterator[str]:
    result = outcome.result
    yield from (f"## {outcome.experiment}", "", f"*{outcome.claim}*", "", result.answer, "")
    yield from (f"![{outcome.claim}]({outcome.experiment}.svg)", "", *markdown(result.table), "")
    yield from (f"- {name}: {ratio:.3g}" for name, ratio in result.ratios.items())
    yield from ("", *(f"{note}\\" for note in result.notes))
    yield f"`{outcome.command}`\\"
    yield outcome.record()


def markdown(table: Table) -> Iterator[str]:
    """A table in Markdown, its first row the head."""
    head, *rows = table
    yield from (_row(head), "|" + "---|" * len(head), *map(_row, rows))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

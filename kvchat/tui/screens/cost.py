"""Why a reply was as slow as it was."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from engine.api import Metrics
from kvchat.store import Conversation, StoredMessage
from kvchat.tui.cost import Part, cause, parts, shares, verdict
from kvchat.tui.format import count, percent, printable, seconds, shorten
from kvchat.tui.widgets.meters import quiet

_NAME, _SECONDS, _PERCENT, _ABOUT = 12, 11, 8, 18
"""Widths of the columns, of the last at least."""


class CostScreen(ModalScreen[None]):
    """Shows one reply of a branch after another."""

    BINDINGS = [
        Binding("escape,enter,q", "dismiss", "Close", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("left", "step(-1)", "Earlier", show=False, tooltip="Show the reply before this one"),
        Binding("right", "step(1)", "Later", show=False, tooltip="Show the reply after this one"),
    ]

    def __init__(
        self,
        conversation: Conversation,
        messages: Sequence[StoredMessage],
        message_id: int | None,
        persona_prompt: str | None,
    ) -> None:
        """Begin with the first reply from `message_id` on, else with the last; one of them must have metrics."""
        super().__init__()
        self._conversation = conversation
        self._messages = messages
        self._persona_prompt = persona_prompt
        self._replies = [index for index, message in enumerate(messages) if message.metrics]
        """Their indices among the messages."""
        start = next((index for index, message in enumerate(messages) if message.id == message_id), len(messages))
        self._shown = next((n for n, index in enumerate(self._replies) if index >= start), len(self._replies) - 1)
        self._heading, self._text = Static(classes="heading", markup=False), Static(markup=False)
        self._chart = _Chart()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="cost"):
            yield self._heading
            with VerticalScroll(can_focus=False):
                yield self._chart
                yield self._text
            yield Static("← → other replies · Esc closes", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._draw()

    def action_step(self, step: int) -> None:
        self._shown = min(max(0, self._shown + step), len(self._replies) - 1)
        self._draw()

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def _draw(self) -> None:
        index = self._replies[self._shown]
        metrics = self._messages[index].metrics or Metrics()
        place = f"reply {count(self._shown + 1)} of {count(len(self._replies))}"
        asked = " ".join(self._messages[index - 1].text.split()) if index else ""
        self._heading.update(f"Where the time went · {place}")
        self._chart.show(printable(asked), metrics)
        self._text.update(
            Content("\n").join(
                [
                    Content(""),
                    Content(verdict(metrics)),
                    Content(cause(self._conversation, self._messages, index, self._persona_prompt)),
                ]
            )
        )


class _Chart(Widget):
    """What was asked, the bar, and its legend, a line each."""

    def __init__(self) -> None:
        super().__init__()
        self._asked, self._metrics = "", Metrics()

    def show(self, asked: str, metrics: Metrics) -> None:
        self._asked, self._metrics = asked, metrics
        self.refresh()

    def render(self) -> Content:
        width, metrics = self.content_size.width, self._metrics
        lines = [
            quiet(shorten(self._asked, width)),
            _bar(metrics, width),
            *(_legend(part, metrics.e2e_s, width) for part in parts(metrics)),
            _row(" ", "", "all", seconds(metrics.e2e_s), "", _figures(metrics), width),
        ]
        return Content("\n").join(lines)


def _figures(metrics: Metrics) -> str:
    return f"ttft {seconds(metrics.ttft_s)} · tpot {seconds(metrics.tpot_s)}"


def _bar(metrics: Metrics, width: int) -> Content:
    spent = parts(metrics)
    cells = shares([part.seconds or 0.0 for part in spent], width)
    return Content.assemble(*((part.glyph * share, part.variable) for part, share in zip(spent, cells, strict=True)))


def _legend(part: Part, total: float, width: int) -> Content:
    share = percent(part.seconds / total) if part.seconds and total > 0 else ""
    spent = seconds(part.seconds or None)
    return _row(part.glyph, part.variable, part.name, spent, share, part.about, width)


def _row(glyph: str, style: str, name: str, spent: str, share: str, about: str, width: int) -> Content:
    numbers = f" {name:<{_NAME}}{spent:>{_SECONDS}}{share:>{_PERCENT}}"
    room = width - len(numbers) - 4
    return Content.assemble((glyph, style), numbers, quiet(f"   {shorten(about, room)}" if room >= _ABOUT else ""))

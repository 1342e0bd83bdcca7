"""The list over the text of the composer that offers how to go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from rich.cells import cell_len, set_cell_size
from textual import on
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from kvchat.tui.completion import Candidate
from kvchat.tui.format import printable

Complete = Callable[[str], Sequence[Candidate]]
"""The text before the cursor -> what could follow."""


class Completions(OptionList):
    """Shown while there is something to offer. The composer keeps the focus."""

    class Chosen(Message):
        """The user clicked a candidate."""

        def __init__(self, candidate: Candidate) -> None:
            super().__init__()
            self.candidate = candidate

    def __init__(self, complete: Complete) -> None:
        super().__init__(compact=True)
        self.can_focus = False
        self.display = False
        self._complete = complete
        self._candidates: list[Candidate] = []
        self._before = ""
        self._dismissed = ""
        """The text for which the user closed the list."""
        self._moved = False
        """The highlighted candidate is one that the user went to."""

    def refresh_for(self, before: str) -> None:
        """Offer what fits the text before the cursor."""
        if before == self._before:
            return
        self._before, self._moved = before, False
        candidates = list(self._complete(before)) if before != self._dismissed else []
        self._candidates = candidates
        width = max((cell_len(printable(each.label)) for each in candidates), default=0) + 2
        self.set_options(
            Option(
                Content.assemble(
                    set_cell_size(printable(each.label), width), (printable(each.about), "$foreground-muted")
                ),
            )
            for each in candidates
        )
        self.display = bool(candidates)
        self.highlighted = 0 if candidates else None

    @property
    def candidate(self) -> Candidate | None:
        """The highlighted one, when the list is open."""
        return self._candidates[self.highlighted] if self.display and self.highlighted is not None else None

    def move(self, way: Literal["up", "down"]) -> None:
        """Highlight the one above or below."""
        self._moved = True
        if way == "up":
            self.action_cursor_up()
        else:
            self.action_cursor_down()

    @property
    def on_enter(self) -> Candidate | None:
        """The one that Enter takes: a path only when the user went to it, as any word can be how some path begins."""
        candidate = self.candidate
        is_path = candidate is not None and (candidate.path is not None or candidate.text.startswith("@"))
        return None if is_path and not self._moved else candidate

    def dismiss(self) -> bool:
        """Close the list until the text changes; whether it was open."""
        was_open = bool(self.display)
        self._dismissed, self.display = self._before, False
        return was_open

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self._candidates[event.option_index]))

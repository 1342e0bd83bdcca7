"""Which code block of several."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from kvchat.tui.code_blocks import CodeBlock


class CodeScreen(ModalScreen[CodeBlock | None]):
    """Lists code blocks, the last one first in hand."""

    BINDINGS = [
        Binding("escape", "dismiss(None)", "Cancel", show=False),
        *(Binding(str(n), f"choose({n})", show=False) for n in range(1, 10)),
    ]

    def __init__(self, blocks: Sequence[CodeBlock]) -> None:
        super().__init__()
        self._blocks = blocks

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="code"):
            yield Static("Copy which code?", classes="heading", markup=False)
            titles = (Content(f"{number} {block.title}") for number, block in enumerate(self._blocks, 1))
            yield OptionList(*titles, compact=True)
            yield Static("Enter, a number or a click copies · Esc cancels", classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = len(self._blocks) - 1

    def action_choose(self, number: int) -> None:
        if number <= len(self._blocks):
            self.dismiss(self._blocks[number - 1])

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._blocks[event.option_index])

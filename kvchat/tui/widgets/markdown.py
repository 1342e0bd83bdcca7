"""Markdown as models write it, streamed."""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from kvchat.tui.widgets.backdrop import Backdrop
from kvchat.tui.widgets.extents import guessed_rows
from kvchat.tui.widgets.unscrolled import Unscrolled

HIGHLIGHT_LIMIT = 4_000
"""Characters; a longer fence is highlighted once, when the reply is complete."""


class ReplyFence(MarkdownFence):
    """A code block that does not highlight thousands of characters again for each new one."""

    streaming = False

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        if cls.streaming and len(code) > HIGHLIGHT_LIMIT:
            return Content(code)
        return super().highlight(code, language, ansi, dark)


class StreamingFence(ReplyFence):
    streaming = True


class ReplyMarkdown(Markdown, Backdrop, Unscrolled):
    """A reply. HTML is text, a line break is a line break, and a link is a message, never an opened browser."""

    def __init__(self, drawn: bool = True) -> None:
        super().__init__(parser_factory=parser, open_links=False)
        self.drawn = drawn
        """Otherwise it only takes the place that it needs."""
        self._complete = False
        self._wanted = "", False
        self._rows = 1

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        if block_name in ("fence", "code_block"):
            return ReplyFence if self._complete else StreamingFence
        block = super().get_block_class(block_name)
        return block if block_name == "table_open" else _unscrolled(block)

    async def show(self, text: str, complete: bool) -> None:
        """Show `text`. While it grows only what is new is parsed; when it is complete all of it is, once."""
        self._wanted = text, complete
        if not self.drawn:
            self.styles.height = self._rows = guessed_rows(text, self.size.width or self.app.size.width)
            return
        if complete == self._complete and text == self.source:
            return
        growing = not complete and text.startswith(self.source)
        self._complete = complete
        if growing:
            await self.append(text[len(self.source) :])
        else:
            await self.update(text)

    @property
    def rows(self) -> int:
        """Its height, guessed as long as it was not drawn."""
        return (self.drawn and self.outer_size.height) or self._rows

    async def draw(self) -> None:
        """Draw what is shown here."""
        if not self.drawn:
            self.drawn = True
            self.styles.height = "auto"
            await self.show(*self._wanted)

    async def undraw(self) -> None:
        """Keep the place of what is shown here, and nothing else."""
        if self.drawn:
            self.styles.height = self._rows = self.rows
            self.drawn = False
            await self.update("")


@cache
def _unscrolled(block: type[MarkdownBlock]) -> type[MarkdownBlock]:
    return type(block.__name__, (block, Unscrolled), {})


@cache
def parser() -> MarkdownIt:
    """Markdown as the replies are read."""
    parser = MarkdownIt("gfm-like", {"html": False})
    parser.core.ruler.push("line_breaks", _keep_line_breaks)
    return parser


def _keep_line_breaks(state: StateCore) -> None:
    """Models separate lines of verse and addresses by a single newline, which Markdown would join."""
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"

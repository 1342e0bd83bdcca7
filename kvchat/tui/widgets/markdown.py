"""Markdown as models write it, streamed."""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

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


class ReplyMarkdown(Markdown):
    """A reply. HTML is text, a line break is a line break, and a link is a message, never an opened browser."""

    def __init__(self) -> None:
        super().__init__(parser_factory=parser, open_links=False)
        self._complete = False

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        if block_name in ("fence", "code_block"):
            return ReplyFence if self._complete else StreamingFence
        return super().get_block_class(block_name)

    async def show(self, text: str, complete: bool) -> None:
        """Show `text`. While it grows only what is new is parsed; when it is complete all of it is, once."""
        if complete == self._complete and text == self.source:
            return
        growing = not complete and text.startswith(self.source)
        self._complete = complete
        if growing:
            await self.append(text[len(self.source) :])
        else:
            await self.update(text)


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

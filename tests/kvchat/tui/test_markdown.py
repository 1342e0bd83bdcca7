"""Markdown that arrives in pieces."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.widgets.markdown import MarkdownFence

from kvchat.tui.widgets.markdown import HIGHLIGHT_LIMIT, ReplyMarkdown

TEXTS = {
    "headings": "# One\n\ntext\n\n## Two\n### Three\n\nSetext\n===\n",
    "lists": "1. one\n2. two\n   - nested\n     1. deep\n\n- [ ] task\n* star\n\n0) odd\n",
    "table": "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 |\n\n| broken |\n|--\n",
    "fences": "```python\nprint('`')\n```\n\n~~~\nopen\n\n    indented\n\n```\nnever closed",
    "quotes": "> one\n> > two\n>\n> - three\n\n---\n***\n",
    "inline": "**bold *both*** ~~gone~~ `code` [link](http://x.y) ![img](z.png) <b>html</b> &amp; \\* [x]: y\n[x][x]",
    "unicode": "日本語 **強調** 👩‍👩‍👧 é\u200b\u202e ␛ \ufffd\n",
    "brackets": "[bold]a[/] [[x]] [/red] {b} $primary [link='x'] \\[y]",
}


class Page(App[None]):
    def compose(self) -> ComposeResult:
        yield ReplyMarkdown()


def content(app: App[None]) -> list[str]:
    return [type(block).__name__ + ":" + str(getattr(block, "_content", "")) for block in app.query("MarkdownBlock")]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_any_text_can_stream_and_ends_as_if_it_had_come_at_once(text: str) -> None:
    async with Page().run_test() as pilot:
        reply = pilot.app.query_one(ReplyMarkdown)
        for end in range(len(text) + 1):
            await reply.show(text[:end], complete=False)
        await reply.show(text, complete=True)
        await pilot.pause()
        streamed = content(pilot.app)
    async with Page().run_test() as pilot:
        await pilot.app.query_one(ReplyMarkdown).show(text, complete=True)
        await pilot.pause()
        assert content(pilot.app) == streamed


async def test_a_long_fence_is_highlighted_once_it_is_complete() -> None:
    text = "```python\n" + "x = 1\n" * (HIGHLIGHT_LIMIT // 5) + "```"
    async with Page().run_test() as pilot:
        reply = pilot.app.query_one(ReplyMarkdown)
        await reply.show(text, complete=False)
        assert not pilot.app.query_one(MarkdownFence)._content.spans
        await reply.show(text, complete=True)
        assert pilot.app.query_one(MarkdownFence)._content.spans

"""How the main screens look: in three sizes, and in every theme. `make snapshots` renews what is kept of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from chat_driver import Chat, Open
from looks import compare, look
from scripted_client import stats
from textual.widgets import Input, TextArea

REPLY = """\
A **KV cache** keeps what attention computed of *every* token before.

## Why

1. Nothing is read twice
2. `prefill` is short
   - with one prefix

| who | blocks |
|---|---|
| tab 1 | 12 |

```python
def hit(tokens):
    return tokens // 16  # blocks
```

> It is [explained](https://example.com) at length."""


async def screens(chat: Chat) -> AsyncIterator[str]:
    """Goes through the screens and says which one is shown."""
    await chat.shows("Everything stays on this machine")
    yield "new"
    chat.client.reply(await chat.send("What is a KV cache?\nIn short."), REPLY)
    chat.client.emit(stats([(list(chat.client.requests)[0], 60)], shared=40, cached=100))
    await chat.press("ctrl+t")
    request = await chat.send("Go on [please]")
    await chat.press("alt+1")
    chat.client.accept(request)
    chat.client.queue(request, "12 blocks needed, 3 free")
    await chat.type("a draft")
    await chat.shows("tok/s", "a draft")
    yield "conversation"
    for title, keys, shown in (
        ("personas", ["ctrl+n"], "Enter starts"),
        ("history", ["ctrl+o"], "shown"),
        ("rename", ["f2"], "Rename the"),
        ("help", ["f1"], "Esc"),
        ("palette", ["ctrl+p"], "Close tab"),
    ):
        await chat.press(*keys)
        await chat.shows(shown)
        yield title
        await chat.press("escape")
    for command in ("theme", "sampling"):
        await chat.app.chat.run_command(f"/{command}")
        await chat.until(lambda: chat.app.screen is not chat.app.chat)
        yield command
        await chat.press("escape")


async def settled(chat: Chat) -> None:
    """Let everything be drawn that is due, and cursors be seen."""
    for field in (*chat.app.screen.query(TextArea), *chat.app.screen.query(Input)):
        field.cursor_blink = False
    await chat.until(lambda: chat.app.chat._panel_timer is None)
    await chat.pilot.pause()
    await chat.pilot.pause()


@pytest.mark.parametrize("size", [(60, 20), (200, 60)])
async def test_every_screen_in_small_and_large(
    open_chat: Open, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    looks = {}
    async with open_chat(size=size) as chat:
        async for title in screens(chat):
            await settled(chat)
            looks[title] = look(chat.app)
    for title, picture in looks.items():
        compare("{}x{}/{}".format(*size, title), picture)


async def test_every_screen_in_every_theme(open_chat: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    looks = {}
    async with open_chat(size=(100, 30)) as chat:
        async for title in screens(chat):
            for theme in sorted(chat.app._themes.own):
                chat.app.theme = theme
                await settled(chat)
                looks[theme, title] = look(chat.app)
            chat.app.theme = "harbor"
            await chat.pilot.pause()
    for (theme, title), picture in looks.items():
        compare(f"100x30/{theme}/{title}", picture)

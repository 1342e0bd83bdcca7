"""Texts that are markup, control sequences or hard to draw, wherever a text can stand, on screens of every size."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
import tomlkit
from chat_driver import Open

from kvchat import paths
from kvchat.store import Store, Tab

MARKUP = "[bold]b[/] [/x] [red [@click=app.quit()]q[/] $primary {0}"
ESCAPES = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x1b[2J\r\x08\x7f"
SCRIPTS = "日本語 한국어 👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 שלום مرحبا e\u0301\u0327\u0323 \u202eolleh \u200b\u2066x\u2069"
HOSTILE = f"{MARKUP} {ESCAPES} {SCRIPTS}"
REPLY = f"""{HOSTILE}

# {HOSTILE}

- {HOSTILE}

| {MARKUP} | b |
|---|---|
| {HOSTILE} | 1 |

```{MARKUP}
{HOSTILE}
```
"""
BIDI_CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def obeyed(text: str) -> set[str]:
    """The characters that a terminal would obey and not show."""
    return {
        hex(ord(each))
        for each in text
        if (unicodedata.category(each) == "Cc" and each != "\n") or each in BIDI_CONTROLS
    }


@pytest.fixture
def hostile(home: Path, store: Store) -> None:
    """A home in which everything has a hostile text."""
    for folder in ("personas", "themes"):
        (paths.config_dir() / folder).mkdir(parents=True)
    persona = {"title": HOSTILE, "description": HOSTILE, "system_prompt": HOSTILE}
    (paths.config_dir() / "personas" / "[evil]\x1b[31m.toml").write_text(tomlkit.dumps(persona))
    (paths.config_dir() / "personas" / "[broken]\x1b[31m.toml").write_text("title = [")
    (paths.config_dir() / "themes" / "[bad]\x1b[31m.toml").write_text("[x")
    conversation = store.create_conversation(title=HOSTILE, persona="[evil]\x1b[31m", system_prompt=HOSTILE)
    asked = store.append_message(conversation.id, None, "user", HOSTILE)
    store.append_message(conversation.id, asked.id, "assistant", REPLY)
    store.save_tabs([Tab(conversation.id, active=True)])


@pytest.mark.parametrize("size", [(40, 10), (110, 30)])
@pytest.mark.usefixtures("hostile")
async def test_every_screen_shows_them_and_obeys_none(open_chat: Open, size: tuple[int, int]) -> None:
    async with open_chat(size=size) as chat:
        failures = []

        async def look(where: str) -> None:
            await chat.pilot.pause()
            if found := obeyed(chat.text):
                failures.append((where, found))

        async def command(text: str) -> None:
            await chat.app.chat.run_command(text)
            await chat.pilot.pause(0.05)
            await look(text)
            if chat.app.screen is not chat.app.chat:
                await chat.press("escape")

        await look("conversation")
        for text in ("/find bold", "/theme", "/model", "/sampling", "/help", "/export", "/stats"):
            await command(text)
        for text in (
            f"/{HOSTILE}",
            f"/set {HOSTILE} 1",
            f"/temp {HOSTILE}",
            f"/attach {HOSTILE}",
            f"/persona {HOSTILE}",
        ):
            await command(text)
        for keys in (
            ["f2"],
            ["ctrl+n"],
            ["ctrl+n", "home", "e"],
            ["ctrl+n", "home", "delete"],
            ["ctrl+o", "ctrl+x"],
            ["f3"],
            ["f3"],
            ["f3"],
        ):
            await chat.press(*keys)
            await chat.pilot.pause(0.05)
            await look(" ".join(keys))
            while chat.app.screen is not chat.app.chat:
                await chat.press("escape")
        for words in ("bold", "go to"):
            await chat.press("ctrl+p")
            await chat.type(words)
            await chat.pilot.pause(0.3)
            await look(f"palette {words}")
            await chat.press("escape")
        await chat.paste(HOSTILE)
        await look("paste")
        await chat.paste(HOSTILE * 50)
        await look("chip")
        await chat.press("enter")
        await chat.until(lambda: chat.client.requests)
        request = list(chat.client.requests)[-1]
        chat.client.accept(request)
        chat.client.queue(request, HOSTILE)
        await look("queued")
        chat.client.say(request, REPLY)
        await chat.press("ctrl+t")
        chat.client.refuse(request, HOSTILE)
        await look("failed in a hidden tab")
        await chat.press("alt+1")
        await look("failed")
        chat.client.die(HOSTILE)
        chat.client.fail(HOSTILE)
        await look("no engine")
        assert not failures
        assert chat.app.is_running


@pytest.mark.usefixtures("hostile")
async def test_brackets_stand_everywhere_as_they_were_written(open_chat: Open) -> None:
    async with open_chat(size=(200, 50)) as chat:
        await chat.shows("[bold]b[/] [/x] [red [@click=app.quit()]q[/] $primary {0}")
        assert "[bold]" in chat.text.splitlines()[0], "a tab"
        await chat.press("ctrl+o")
        await chat.shows("open · ")
        assert chat.text.count("[bold]b") > 2
        await chat.press("escape", "ctrl+p")
        await chat.type("go to")
        await chat.shows("Go to [bold]b[/] [/x]")
        await chat.press("escape")
        await chat.app.chat.run_command("/[bold]x[/]")
        await chat.shows("/[bold]x[/]")
        chat.client.fail("[bold]no[/] engine [/]")
        await chat.shows("No engine: [bold]no[/] engine [/]")

"""Renews docs/screenshots from the running application on the real model: `make screenshots`."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from textual.pilot import Pilot

from engine import ProcessClient
from engine.locate import model_folder
from kvchat.config import Config, load_config
from kvchat.conversation import ConversationController
from kvchat.personas import load_personas
from kvchat.store import Store
from kvchat.tui.app import KvChatApp

FOLDER = Path(__file__).parent / "screenshots"
PATIENCE_S = 180.0


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pilot.pause(0.05)


def wrote(tab: ConversationController, count: int) -> bool:
    """Whether the running reply has that many tokens, or has ended before."""
    return tab.reply is None or len(tab.reply.token_ids) >= count


async def ask(pilot: Pilot[None], app: KvChatApp, text: str) -> None:
    app.chat.active_pane.composer.editor.insert(text)
    await pilot.press("enter")


def save(app: KvChatApp, name: str) -> None:
    (FOLDER / f"{name}.svg").write_text(app.export_screenshot(title="kvchat"))
    print(f"{name}.svg", flush=True)


async def session(config: Config, root: Path) -> None:
    """Two tabs on one long persona, streaming at the same time; then the dialogs and a light theme."""
    with Store.open(root / "history.db") as store:
        client = ProcessClient(config.engine, root / "engine.log")
        app = KvChatApp(config, store, client, load_personas(root))
        try:
            async with app.run_test(size=(120, 36)) as pilot:
                await until(pilot, lambda: app.engine.state == "ready")
                tutor = app.workspace.personas.named("tutor")
                await app.chat.open_tab(tutor)
                first = app.workspace.active
                await ask(pilot, app, "What is a prime number? Give me two examples.")
                await until(pilot, lambda: not first.reply)
                await app.chat.open_tab(tutor)
                second = app.workspace.active
                await ask(pilot, app, "Explain in detail, as a numbered list, how a plant turns light into sugar.")
                await until(pilot, lambda: wrote(second, 10))
                await pilot.press("alt+2")
                await ask(pilot, app, "Now explain step by step how to find out whether 51 is prime.")
                await until(pilot, lambda: wrote(first, 25))
                await pilot.pause(0.4)
                save(app, "two-tabs")
                await until(pilot, lambda: not first.reply and not second.reply)
                await pilot.press("alt+w")
                await until(pilot, lambda: app.screen is not app.chat)
                await pilot.pause(0.3)
                save(app, "cost")
                await pilot.press("escape", "ctrl+n")
                await until(pilot, lambda: app.screen is not app.chat)
                await pilot.pause(0.3)
                save(app, "personas")
                await pilot.press("escape", "ctrl+o")
                await pilot.press(*"prime")
                await pilot.pause(0.6)
                save(app, "search")
                await pilot.press("escape")
                await app.chat.run_command("/theme")
                await pilot.press(*["down"] * 2)
                await pilot.pause(0.6)
                save(app, "themes")
                await pilot.press("escape")
                app.theme = "linen"
                await pilot.press("alt+3")
                await pilot.pause(0.6)
                save(app, "light")
        finally:
            client.close()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    model = model_folder("smollm2-135m-instruct")
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_CONFIG_HOME"] = root
        config = load_config(None)
        engine = msgspec.structs.replace(config.engine, model=str(model), kv_memory=64 << 20)
        sampling = msgspec.structs.replace(config.sampling, temperature=0.3, seed=1, max_tokens=220)
        asyncio.run(session(msgspec.structs.replace(config, engine=engine, sampling=sampling), Path(root)))


if __name__ == "__main__":
    main()

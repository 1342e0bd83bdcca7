"""How promptly the interface answers while two tabs stream and every core is busy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from textual.pilot import Pilot

from engine import ProcessClient
from engine.errors import EngineError
from kvchat.config import Config
from kvchat.conversation import ConversationController
from kvchat.personas import load_personas
from kvchat.store import Store
from kvchat.tui.app import KvChatApp
from kvchat.tui.responsiveness import Lag, LoopLag

SIZE = (140, 45)
START_S = 600.0
REPLY_TOKENS = 400
"""After so many another reply begins."""
QUESTIONS = (
    "Explain step by step, with headings, lists and code, how a hash table works.",
    "Write a long story about a lighthouse, in many chapters.",
)


@dataclass(frozen=True, slots=True)
class InterfaceReport:
    lag: Lag
    tokens: int
    """Generated in both tabs meanwhile."""
    load_per_core: float
    """At the end, see Responsiveness."""


def measure(config: Config, seconds: int, progress: Callable[[str], None]) -> InterfaceReport:
    """Stream into two tabs of the application, with the panel at its fullest, while processes of the same priority as
    the interface spin on every core. Nothing is drawn on a terminal: how long that takes is the terminal's affair.

    Raises EngineError when there is no engine."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "history.db") as store:
        client = ProcessClient(config.engine, Path(folder) / "engine.log")
        sampling = replace(config.sampling, max_tokens=REPLY_TOKENS)
        config = replace(config, sampling=sampling, ui=replace(config.ui, panel="debug"))
        app = KvChatApp(config, store, client, load_personas())
        try:
            return asyncio.run(_measure(app, seconds, progress))
        finally:
            client.close()


async def _measure(app: KvChatApp, seconds: int, progress: Callable[[str], None]) -> InterfaceReport:
    async with app.run_test(size=SIZE) as pilot:
        progress("loading the model")
        await _until(pilot, lambda: app.engine.state != "loading")
        if app.engine.state != "ready":
            raise EngineError(app.engine.detail)
        await app.chat.action_new_tab()
        tabs = app.workspace.tabs
        for tab, question in zip(tabs, QUESTIONS, strict=True):
            tab.send(question)
        await _until(pilot, lambda: all(tab.reply is None or tab.reply.token_ids for tab in tabs))
        counted = [0, 0]
        lag = LoopLag(seconds)
        with _busy_cores():
            lag.start()
            for left in range(seconds, 0, -1):
                progress(f"{left} s left")
                await asyncio.sleep(1)
                for index, tab in enumerate(tabs):
                    if tab.reply is None:
                        counted[index] += _completion_tokens(tab)
                        tab.regenerate()
            lag.stop()
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        tokens = sum(counted) + sum(len(tab.reply.token_ids) for tab in tabs if tab.reply)
        for tab in tabs:
            tab.stop()
        await _until(pilot, lambda: not app.workspace.running())
    return InterfaceReport(lag.measure(), tokens, load)


async def _until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    async with asyncio.timeout(START_S):
        while not condition():
            await pilot.pause(0.05)


def _completion_tokens(tab: ConversationController) -> int:
    metrics = tab.messages[-1].metrics
    return metrics.completion_tokens if metrics else 0


@contextmanager
def _busy_cores() -> Iterator[None]:
    """A process that does nothing but compute for every core, until the block ends."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()

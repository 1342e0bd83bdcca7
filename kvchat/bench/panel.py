"""What the live panel costs the engine: `python -m kvchat.bench.panel`, in a terminal of 120 x 40 or without one.

The application itself runs, with its own engine process, and asks for the same greedy reply again and again, each time
in a tab of its own: with the panel off, in two lines and in full by turns, so that a slow minute of the machine counts
against all of them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import replace
from textual.pilot import Pilot

from engine.process import ProcessClient
from kvchat.cli.table import table
from kvchat.config import Config, load_config
from kvchat.personas import load_personas
from kvchat.store import Store
from kvchat.tui.app import KvChatApp
from kvchat.tui.widgets.panel import PanelMode

MODES: tuple[PanelMode, ...] = ("off", "compact", "full")
QUESTION = "Tell me a long story about the sea."
POLL_S = 0.05
SIZE = (120, 40)
"""Columns and rows without a terminal."""


async def measure(app: KvChatApp, rounds: int) -> dict[PanelMode, list[float]]:
    """Tokens per second of one reply a round, by the form of the panel. Raises RuntimeError when a reply fails."""
    speeds: dict[PanelMode, list[float]] = {mode: [] for mode in MODES}
    for number in range(rounds + 1):
        for mode in MODES[number % 3 :] + MODES[: number % 3]:
            app.chat.show_panel(mode)
            speed = await _reply(app)
            if number:  # the first round warms everything up
                speeds[mode].append(speed)
    return speeds


async def _reply(app: KvChatApp) -> float:
    workspace = app.workspace
    await app.chat.open_tab(workspace.default_persona)
    tab = workspace.active
    tab.send(QUESTION)
    while tab.reply:
        if not app.is_running:
            raise RuntimeError("the application ended before the reply did")
        await asyncio.sleep(POLL_S)
    last = tab.messages[-1]
    if last.status != "complete" or last.metrics is None or last.metrics.tokens_per_s is None:
        raise RuntimeError(f"the reply was not generated: {last.error or last.status}")
    workspace.close(tab)
    await app.chat.show_active()
    await app.chat.forget(tab)
    return last.metrics.tokens_per_s


def report(speeds: dict[PanelMode, list[float]]) -> list[Sequence[str]]:
    """A table: the median of each form, and that of what it loses against none in the same round."""
    rows: list[Sequence[str]] = [("panel", "tokens/s", "against off", "lowest", "highest")]
    for mode, values in speeds.items():
        change = statistics.median(value / off - 1 for value, off in zip(values, speeds["off"], strict=True))
        median, lowest, highest = statistics.median(values), min(values), max(values)
        rows.append((mode, f"{median:.2f}", f"{100 * change:+.1f} %", f"{lowest:.2f}", f"{highest:.2f}"))
    return rows


def run(config: Config, rounds: int, tokens: int, headless: bool) -> dict[PanelMode, list[float]]:
    """Open the chat over an empty history, measure, and leave."""
    sampling = replace(config.sampling, temperature=0.0, max_tokens=tokens, ignore_eos=True)
    config = replace(config, sampling=sampling, ui=replace(config.ui, auto_titles=False, sidebar=False))
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "kvchat.db") as store:
        client = ProcessClient(config.engine, Path(folder) / "engine.log")
        app = KvChatApp(config, store, client, load_personas())
        speeds: dict[PanelMode, list[float]] = {}

        async def drive(pilot: Pilot[object]) -> None:
            await pilot.pause()
            speeds.update(await measure(app, rounds))
            app.exit()

        try:
            app.run(headless=headless, size=SIZE if headless else None, auto_pilot=drive)
        except RuntimeError as error:  # a reply stops as well when the application breaks
            raise app.crash or error from None
        finally:
            client.close()
    if app.crash:
        raise app.crash
    return speeds


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--tokens", type=click.IntRange(min=16), default=200, show_default=True, help="Of each reply.")
@click.option("--model", metavar="NAME", help="A name of `kvchat models` or a folder; by default the settings'.")
def main(rounds: int, tokens: int, model: str | None) -> None:
    """Measure the engine's speed with the live panel off, in two lines and in full."""
    config = load_config()
    if model:
        config = replace(config, engine=replace(config.engine, model=model))
    try:
        speeds = run(config, rounds, tokens, headless=not sys.stdout.isatty())
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    if not speeds:
        raise click.ClickException("nothing was measured: it was left before the end")
    print(table(report(speeds)))


if __name__ == "__main__":
    main()

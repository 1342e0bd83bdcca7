"""How promptly the interface answers, measured and shown."""

from __future__ import annotations

import asyncio
import gc
import re
import time

from chat_driver import Chat, Open
from scripted_client import metrics

from engine.api import Progress
from kvchat.config import Config, UiConfig
from kvchat.tui.responsiveness import INTERVAL_S, Lag, LoopLag

LARGE = (120, 36)
BLOCKED_S = 0.4


async def blocked() -> LoopLag:
    """A measurement that saw the loop blocked once, and little else."""
    lag = LoopLag()
    lag.start()
    asyncio.get_running_loop().call_soon(time.sleep, BLOCKED_S)
    while lag.measure() == Lag():
        await asyncio.sleep(0)
    lag.stop()
    return lag


def milliseconds(label: str, text: str) -> float:
    """The value of a row of the panel."""
    match = re.search(rf"{label} +([\d.]+) (ms|s)\b", text)
    assert match, f"no {label} in:\n{text}"
    return float(match[1]) * (1 if match[2] == "ms" else 1000)


async def test_nothing_is_known_before_the_first_sample() -> None:
    lag = LoopLag()
    lag.start()
    assert lag.measure() == Lag()
    lag.stop()


async def test_a_callback_that_blocks_the_loop_is_seen_as_lag() -> None:
    lag = await blocked()
    found = lag.measure()
    assert found.max >= BLOCKED_S - INTERVAL_S


async def test_a_block_counts_for_every_sample_that_was_due_meanwhile() -> None:
    lag = await blocked()
    found = lag.measure()
    assert found.p50 >= BLOCKED_S / 2 - 2 * INTERVAL_S, "who comes during a block waits for half of it"
    assert found.p50 < found.p95 <= found.max


async def test_a_new_start_forgets_the_old_window() -> None:
    lag = await blocked()
    lag.start()
    assert lag.measure() == Lag()
    lag.stop()


async def test_a_stopped_measurement_takes_no_samples() -> None:
    lag = LoopLag()
    lag.start()
    lag.stop()
    await asyncio.sleep(2 * INTERVAL_S)
    assert lag.measure() == Lag()


async def to_debug(chat: Chat) -> None:
    await chat.press("f3", "f3", "f3")


async def test_f3_reaches_the_debug_form_of_the_panel(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        await to_debug(chat)
        await chat.shows("Responsiveness", "lag p50", "lag p95", "lag max", "/ 33 ms", "frames/s", "load per core")
        await chat.shows("This tab", "prefill tokens/s", "preemptions")
        await chat.shows_not("KV blocks")
        await chat.press("f3")
        await chat.shows("KV blocks")
        await chat.shows_not("Responsiveness")


async def test_the_palette_and_the_help_name_the_debug_form(open_chat: Open) -> None:
    about = "full, two lines, none, debug"
    async with open_chat(size=(120, 90), config=Config(ui=UiConfig(panel="off"))) as chat:
        await chat.press("f1")
        await chat.shows(about)
        await chat.press("escape", "ctrl+p")
        await chat.type("panel")
        await chat.shows(about)
        await chat.press("enter")
        await chat.shows("Responsiveness")


async def test_the_debug_form_shows_a_blocked_interface(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        await to_debug(chat)
        await chat.shows("lag max")
        chat.app.call_later(lambda: time.sleep(BLOCKED_S))
        blocked_ms = (BLOCKED_S - INTERVAL_S) * 1000
        await chat.until(lambda: milliseconds("lag max", chat.text) >= blocked_ms - 1)


async def test_the_debug_form_counts_frames_and_updates(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        await to_debug(chat)
        request = await chat.send("Hello")
        chat.client.accept(request)
        for word in range(50):
            chat.client.say(request, f"word{word} ")
        chat.client.emit(Progress(request, "decode", 412, metrics(50)))
        await chat.until(lambda: re.search(r"updates/s +(?!0\.0)[\d.]+", chat.text))
        await chat.until(lambda: re.search(r"frames/s +(?!0\.0)[\d.]+ · [\d.]+ m?s each", chat.text))


async def test_where_the_panel_has_no_space_debug_numbers_stand_in_two_lines(open_chat: Open) -> None:
    async with open_chat(size=(80, 24)) as chat:
        await to_debug(chat)
        await chat.shows("lag p95", "max", "load/core", "0 / 512 blocks")
        await chat.pilot.resize_terminal(*LARGE)
        await chat.shows("Responsiveness")
        await chat.shows_not("512 blocks")


async def test_the_lag_is_measured_while_a_reply_runs(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        gauge = chat.app.chat._monitor.gauge
        assert not gauge.watching
        request = await chat.send("Hello")
        assert gauge.watching
        chat.client.reply(request, "one")
        await chat.until(lambda: not gauge.watching)


async def test_garbage_is_collected_again_after_the_first_paint(open_chat: Open) -> None:
    gc.disable()
    async with open_chat() as chat:
        await chat.until(gc.isenabled)

"""The measurement of what the panel costs; the engine is scripted, so that its speed is known."""

from __future__ import annotations

import asyncio

import pytest
from chat_driver import Chat, Open

from engine.api import GenerationRequest
from kvchat.bench.panel import MODES, measure, report
from kvchat.tui.widgets.panel import Panel, PanelStrip


def answering(chat: Chat, monkeypatch: pytest.MonkeyPatch, refuse: bool = False) -> list[str]:
    """The engine answers by itself; which form of the panel stood on the screen when it was asked."""
    forms: list[str] = []
    submit = chat.client.submit

    def answer(request_id: str) -> None:
        screen = chat.app.chat
        panel, strip = screen.query_one(Panel).display, screen.query_one(PanelStrip).display
        forms.append("full" if panel else "compact" if strip else "off")
        (chat.client.refuse(request_id, "no memory") if refuse else chat.client.reply(request_id, "a story"))

    def submit_and_answer(request: GenerationRequest) -> str:
        request_id = submit(request)
        asyncio.get_running_loop().call_later(0.3, answer, request_id)
        return request_id

    monkeypatch.setattr(chat.client, "submit", submit_and_answer)
    return forms


async def test_every_form_of_the_panel_is_measured_in_turn_after_a_round_that_does_not_count(
    open_chat: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_chat(size=(120, 40)) as chat:
        forms = answering(chat, monkeypatch)
        speeds = await measure(chat.app, rounds=1)
        assert forms == ["off", "compact", "full", "compact", "full", "off"]
        assert {mode: [round(value, 1) for value in values] for mode, values in speeds.items()} == {
            mode: [41.5] for mode in MODES
        }
        assert len(chat.app.workspace.tabs) == 1


async def test_a_reply_that_fails_ends_the_measurement(open_chat: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_chat(size=(120, 40)) as chat:
        answering(chat, monkeypatch, refuse=True)
        with pytest.raises(RuntimeError, match="no memory"):
            await measure(chat.app, rounds=1)


def test_the_report_compares_with_no_panel() -> None:
    rows = report({"off": [100, 90, 110], "compact": [99, 99, 99], "full": [97, 98, 96]})
    assert rows[1:] == [
        ("off", "100.00", "+0.0 %", "90.00", "110.00"),
        ("compact", "99.00", "-1.0 %", "99.00", "99.00"),
        ("full", "97.00", "-3.0 %", "96.00", "98.00"),
    ]

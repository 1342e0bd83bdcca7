"""What is said of a reply that ends unseen."""

from __future__ import annotations

import pytest
from chat_driver import Chat, Open
from textual.widgets._toast import Toast

from kvchat.config import Config, UiConfig
from kvchat.tui.app import KvChatApp
from kvchat.tui.widgets.composer import Composer

DESKTOP, BELL = Config(ui=UiConfig(notify="desktop")), Config(ui=UiConfig(notify="bell"))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to the terminal as it is."""
    from textual.drivers.headless_driver import HeadlessDriver

    written: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "write", lambda self, data: written.append(data))
    monkeypatch.setattr(KvChatApp, "bell", lambda self: written.append("\a"))  # without a terminal there is none
    return written


def called(written: list[str]) -> list[str]:
    return [data for data in written if data == "\a" or data.startswith("\x1b]9;")]


async def ended_unseen(chat: Chat, question: str = "Ask A") -> None:
    request = await chat.send(question)
    await chat.press("ctrl+t")
    chat.client.reply(request, "text")
    await chat.shows("the reply is here · Alt+1", "◆")


async def test_a_toast_names_the_key_of_the_tab(open_chat: Open, written: list[str]) -> None:
    async with open_chat(size=(120, 36)) as chat:
        await ended_unseen(chat)
        assert called(written) == []


async def test_the_desktop_is_told_in_one_line_that_no_title_can_break_out_of(
    open_chat: Open, written: list[str]
) -> None:
    async with open_chat(size=(120, 36), config=DESKTOP) as chat:
        await ended_unseen(chat, "Ask\a\x1b]0;evil")
        [told] = called(written)
        assert told.startswith("\x1b]9;") and told.endswith(": the reply is here\a")
        assert not set(told[1:-1]) & {"\a", "\x1b", "\n"}


async def test_the_bell_rings_for_the_visible_tab_only_when_the_window_is_in_the_background(
    open_chat: Open, written: list[str]
) -> None:
    async with open_chat(config=BELL) as chat:
        for focus, rings in ((True, 0), (False, 1)):
            request = await chat.send("Ask")
            chat.app.app_focus = focus
            chat.client.reply(request, "text")
            await chat.until(lambda: not chat.tab.reply)
            await chat.pilot.pause()
            assert len(called(written)) == rings


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_what_is_told_leaves_the_composer_free(open_chat: Open, size: tuple[int, int]) -> None:
    async with open_chat(size=size) as chat:
        chat.app.notify("something happened", timeout=60)
        await chat.until(lambda: chat.app.screen.query(Toast) and chat.app.screen.query_one(Toast).region)
        composer = chat.app.chat.active_pane.query_one(Composer)
        assert chat.app.screen.query_one(Toast).region.bottom <= composer.region.y

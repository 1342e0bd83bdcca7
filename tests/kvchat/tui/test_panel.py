"""The live panel."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from chat_driver import Open
from scripted_client import metrics, stats

from engine.api import BLOCK_CACHED, BLOCK_FREE, BLOCK_OWNED, BLOCK_SHARED, Metrics, Progress
from kvchat import paths
from kvchat.config import Config, UiConfig, load_config
from kvchat.tui.screens import chat as chat_module
from kvchat.tui.widgets.block_map import CACHED, FREE, OTHER, OWN, SHARED, BlockMap, count_owners, draw, own_code
from kvchat.tui.widgets.meters import bar, charted, row, scale, sparkline
from kvchat.tui.widgets.panel import Panel, Readout

LARGE = (120, 36)
BLOCKS = bytes([BLOCK_SHARED] * 2 + [BLOCK_OWNED] * 3 + [BLOCK_OWNED + 1] * 4 + [BLOCK_CACHED] + [BLOCK_FREE] * 6)


async def test_the_panel_shows_reply_engine_model_and_pool(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "one two three")
        chat.client.emit(
            Progress(request, "decode", 412, metrics(3)),
            stats([(chat.tab.id, 70), ("somebody else", 40)], shared=22, cached=120, waiting=1),
        )
        await chat.shows("182 ms", "24.1 ms", "384 of 412", "83.0", "2 · 1 waiting", "87 %", "132 / 512")
        await chat.shows("this tab   70", "other      40", "shared    22", "cached   120")
        await chat.shows("smollm2-135m-instruct", "int4 + int8 · kv bfloat16 · cpu", "/ 8,192", "Assistant")


async def test_the_map_is_coloured_from_the_view_of_the_tab_that_is_shown(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        first = chat.tab.id
        await chat.send("Hello")
        await chat.press("ctrl+t")
        chat.client.emit(stats([(first, 60)]))
        await chat.shows("other      60", "this tab    0")
        await chat.press("alt+1")
        await chat.shows("other       0", "this tab   60")


async def test_f3_shows_the_panel_in_full_in_two_lines_and_not_at_all(open_chat: Open) -> None:
    """And keeps the choice, but for the form to debug."""
    async with open_chat(size=LARGE) as chat:
        await chat.shows("This tab")
        await chat.press("f3")
        await chat.shows("0 / 512 blocks")
        await chat.shows_not("This tab")
        assert load_config(paths.config_file()).ui.panel == "compact"
        await chat.press("f3")
        await chat.shows_not("512 blocks")
        await chat.press("f3")
        await chat.shows("This tab")
        assert load_config(paths.config_file()).ui.panel == "off"


async def test_the_panel_starts_as_the_settings_say(open_chat: Open) -> None:
    async with open_chat(size=LARGE, config=Config(ui=UiConfig(panel="compact"))) as chat:
        await chat.shows("0 / 512 blocks")


async def test_the_panel_hides_itself_where_there_is_no_space(open_chat: Open) -> None:
    async with open_chat(size=(80, 24)) as chat:
        assert "This tab" not in chat.text
        await chat.pilot.resize_terminal(120, 36)
        await chat.shows("This tab")


async def test_the_scale_of_a_large_map_has_space(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        large = msgspec.structs.replace(stats(), block_map=bytes([BLOCK_CACHED]) * 11_650)
        chat.client.emit(large)
        await chat.shows("a cell, 11,650 of 11,650")


async def test_an_engine_that_became_idle_has_no_speed(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        chat.client.emit(stats([("a", 5)]))
        await chat.shows("41.5")
        chat.client.emit(stats())
        await chat.shows_not("41.5")


def test_every_block_has_one_owner() -> None:
    assert count_owners(BLOCKS, BLOCK_OWNED) == {SHARED: 2, OWN: 3, OTHER: 4, CACHED: 1, FREE: 6}
    assert count_owners(BLOCKS, None) == {SHARED: 2, OWN: 0, OTHER: 7, CACHED: 1, FREE: 6}


def test_the_owner_is_found_by_the_id_of_the_conversation() -> None:
    snapshot = stats([("a", 1), ("b", 1)])
    assert own_code(snapshot, "b") == BLOCK_OWNED + 1
    assert own_code(snapshot, "c") is None


def test_a_map_with_space_draws_a_cell_for_each_block() -> None:
    drawn, per_cell = draw(BLOCKS, BLOCK_OWNED, cells=100)
    assert (drawn, per_cell) == ([SHARED] * 2 + [OWN] * 3 + [OTHER] * 4 + [CACHED] + [FREE] * 6, 1)


@pytest.mark.parametrize("cells", [1, 2, 3, 5, 8, 15])
def test_a_map_is_scaled_down_to_its_space(cells: int) -> None:
    drawn, per_cell = draw(BLOCKS, BLOCK_OWNED, cells)
    assert len(drawn) <= cells
    assert not BLOCKS[len(drawn) * per_cell :].strip(bytes([BLOCK_FREE])), "only free blocks are left out"


def test_a_cell_shows_who_is_there_even_if_most_of_it_is_free() -> None:
    assert draw(bytes([BLOCK_FREE] * 7 + [BLOCK_CACHED]), None, cells=1) == ([CACHED], 8)


def test_the_map_of_a_large_pool_begins_with_its_used_part() -> None:
    blocks = bytes([BLOCK_OWNED] * 20).ljust(10_000, bytes([BLOCK_FREE]))
    assert draw(blocks, BLOCK_OWNED, cells=16) == ([OWN] * 10 + [FREE] * 6, 2)


def test_no_pool_yet_draws_nothing() -> None:
    assert draw(b"", None, cells=10) == ([], 1)


@pytest.mark.parametrize(("top", "end"), [(0.0, 0), (0.18, 0.2), (1, 1), (3, 5), (6, 10), (41.5, 50), (306, 500)])
def test_a_scale_ends_at_a_round_number(top: float, end: float) -> None:
    assert scale([0.0, top]) == pytest.approx(end)


def test_a_sparkline_keeps_its_scale_while_values_move() -> None:
    assert sparkline([0, 5, 10, 20], 4) == "▁▃▅█"
    assert sparkline([0, 5, 10, 19], 4) == "▁▃▅█"
    assert sparkline([20, 5, 5], 2) == "▃▃", "what scrolled away still belongs to the scale"
    assert sparkline([10], 3) == "▁▁█"
    assert sparkline([], 3) == "▁▁▁"


@pytest.mark.parametrize("parts", [[0, 0], [1, 0], [50, 50], [100, 0], [1, 99]])
def test_a_bar_has_its_width_and_shows_every_part_that_is_there(parts: list[int]) -> None:
    drawn = bar([(amount, f"style{index}") for index, amount in enumerate(parts)], 100, 10)
    assert drawn.plain == "━" * 10
    shown = [sum(span.end - span.start for span in drawn.spans if span.style == f"style{i}") for i in range(2)]
    assert [bool(cells) for cells in shown] == [bool(amount) for amount in parts]


def test_a_row_fills_its_width() -> None:
    assert row("ttft", "182 ms", 14).plain == "ttft    182 ms"


def test_a_row_with_a_chart_is_as_wide_as_one_without() -> None:
    assert charted("ttft", [1, 2], "182 ms", 30).plain == "ttft" + " " * 16 + "▅█  182 ms"
    assert charted("ttft", [1], "182 ms", 30).plain == row("ttft", "182 ms", 30).plain
    assert charted("ttft", [1, 2], "182 ms", 12).plain == row("ttft", "182 ms", 12).plain


async def test_earlier_replies_are_charted_beside_the_last(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        for text in ("one", "two"):
            chat.client.reply(await chat.send(text), "some words")
            await chat.until(lambda: not chat.tab.reply)
        await chat.shows("██  182 ms", "24.1 ms")


async def test_a_block_tells_whose_it_is_under_the_mouse(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        request = await chat.send("Where do birds nest?")
        chat.client.accept(request)
        chat.client.emit(stats([(chat.tab.id, 3), ("somebody else", 4)], shared=1))
        await chat.shows("■ this tab    3")
        block_map = chat.app.screen.query_one(BlockMap)
        for column, owner in ((0, "shared"), (2, "Where do birds nest?"), (8, "another"), (20, "free")):
            await chat.pilot.hover(block_map, offset=(column, 0))
            await chat.until(lambda owner=owner: owner in str(block_map.tooltip))


async def test_the_cursor_on_the_map_names_a_block_and_goes_to_its_tab(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        chat.client.accept(await chat.send("Where do birds nest?"))
        first = chat.tab
        await chat.press("ctrl+t")
        chat.client.emit(stats([("somebody else", 4), (first.id, 3)], shared=1))
        await chat.shows("▣ other       7")
        await chat.press("alt+m")
        block_map = chat.app.screen.query_one(BlockMap)
        await chat.until(lambda: block_map.has_focus)
        await chat.shows("block 0: shared")
        await chat.press("left", "right")
        await chat.shows("block 1: another conversation")
        await chat.press("enter", *["right"] * 4)
        await chat.shows("block 5: Where do birds nest?")
        assert chat.tab is not first
        await chat.press("enter")
        await chat.until(lambda: chat.tab is first and not block_map.has_focus)


async def test_escape_leaves_the_map_and_does_not_stop_the_reply(open_chat: Open) -> None:
    async with open_chat(size=LARGE, config=Config(ui=UiConfig(panel="off"))) as chat:
        chat.client.accept(await chat.send("Where do birds nest?"))
        await chat.press("alt+m")
        block_map = chat.app.screen.query_one(BlockMap)
        await chat.until(lambda: block_map.has_focus)
        await chat.press("down", "down", "up", "escape")
        await chat.until(lambda: chat.app.chat.active_pane.composer.editor.has_focus)
        assert chat.client.aborted == []


async def test_without_space_for_the_map_its_key_says_so(open_chat: Open) -> None:
    async with open_chat(size=(80, 24)) as chat:
        await chat.press("alt+m")
        await chat.shows("there is no space for the KV blocks")


async def test_a_click_on_a_block_goes_to_its_tab(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        chat.client.accept(await chat.send("Where do birds nest?"))
        first = chat.tab
        await chat.press("ctrl+t")
        chat.client.emit(stats([(first.id, 3)]))
        await chat.shows("▣ other       3")
        await chat.pilot.click(BlockMap, offset=(2, 0))
        await chat.until(lambda: chat.tab is first)


async def test_the_queue_names_every_waiting_tab_and_what_it_waits_for(open_chat: Open) -> None:
    async with open_chat(size=(120, 50)) as chat:
        assert "Queue" not in chat.text
        request = await chat.send("Where do birds nest?")
        chat.client.accept(request)
        chat.client.queue(request, "12 KV blocks, 3 available")
        await chat.press("ctrl+t")
        await chat.send("And fish?")
        await chat.shows("Queue", "○ Where do birds nest?", "for 12 KV blocks, 3 available", "○ And fish?")
        await chat.shows("replies wait, see the queue")
        chat.client.prefill(request, 100)
        await chat.shows_not("12 KV blocks")


async def test_the_panel_tells_the_memory_of_the_engine(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        await chat.shows("memory of the engine", "612 MiB")


async def test_only_lines_that_changed_are_drawn_again(open_chat: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_chat(size=LARGE) as chat:
        chat.client.emit(stats([(chat.tab.id, 70)]))
        await chat.shows("this tab   70")
        await chat.pilot.pause()
        drawn: list[int] = []
        for kind in (Readout, BlockMap):
            monkeypatch.setattr(kind, "refresh", lambda lines, *rows, **how: drawn.extend(row.y for row in rows))
        readout = chat.app.chat.query_one(Panel).query_one(Readout)
        readout.show(readout.vitals)
        assert not drawn
        readout.show(replace(readout.vitals, context_tokens=4000))
        lines = [line.plain for line in readout.lines(readout.size.width)]
        context = next(y for y, line in enumerate(lines) if line.startswith("context"))
        assert drawn == [context, context + 1], "its number and its bar"


async def test_titles_in_wide_characters_take_one_row_and_what_is_below_them_stays_live(open_chat: Open) -> None:
    async with open_chat(size=(120, 50)) as chat:
        request = await chat.send("中文写作助手专家级别的私人助理" * 3)
        chat.client.accept(request)
        chat.client.queue(request, "12 KV blocks, 3 available")
        await chat.shows("○ 中文写作助手", "for 12 KV blocks")
        for used in (60, 61):
            chat.client.emit(stats([("another", used)]))
            await chat.shows(f"other      {used}", "memory of the engine")
        queue = [line[-34:].split() for line in chat.text.splitlines() if "○" in line]
        assert queue and all(cells[-1].endswith("…") for cells in queue[-1:])


async def test_a_title_of_several_lines_takes_one_row(open_chat: Open) -> None:
    async with open_chat(size=(120, 50)) as chat:
        request = await chat.send("Hello")
        chat.tab.rename("first\nsecond\tthird")
        chat.client.accept(request)
        chat.client.queue(request, "12 KV blocks")
        await chat.shows("○ first second  third", "for 12 KV blocks")
        rows = chat.app.chat.query_one(Panel).query_one(Readout)
        assert rows.render().plain.count("\n") + 1 == rows.size.height


@pytest.mark.parametrize("width", [40, 60, 76, 80])
async def test_the_two_lines_are_two_at_every_width(open_chat: Open, width: int) -> None:
    async with open_chat(size=(width, 20)) as chat:
        chat.client.emit(stats([(chat.tab.id, 70)]))
        for form in ("debug", "compact", "debug"):
            chat.app.chat.show_panel(form)
            await chat.pilot.pause()
            first, second = ("lag p95", "blocks") if form == "debug" else ("ttft", "blocks")
            await chat.shows(first, second)
            assert ("running" in chat.text) <= (form == "compact")


async def test_numbers_alone_wait_and_what_happens_in_the_tab_is_shown_at_once(
    open_chat: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_module, "PANEL_REFRESH_S", 1e9)
    async with open_chat(size=LARGE) as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.emit(Progress(request, "decode", 412, metrics(3)), stats([(chat.tab.id, 70)]))
        await chat.shows("182 ms")
        drawn: list[object] = []
        monkeypatch.setattr(Readout, "show", lambda readout, vitals: drawn.append(vitals))
        for used in range(71, 80):
            chat.client.emit(Progress(request, "decode", 412, metrics(3)), stats([(chat.tab.id, used)]))
            await chat.pilot.pause()
        assert not drawn
        chat.client.finish(request)
        await chat.until(lambda: drawn)


async def test_f3_leaves_one_timer_for_the_panel(open_chat: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that follow one another would go on for as long as something runs."""
    async with open_chat(size=LARGE) as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        await chat.pilot.pause()
        screen, set_timer, started = chat.app.chat, chat.app.chat.set_timer, []

        def counted(delay: float, callback: object) -> object:
            started.append(callback)
            return set_timer(1e9, callback)

        monkeypatch.setattr(screen, "set_timer", counted)
        for _ in range(4):
            await chat.press("f3")
            chat.client.emit(Progress(request, "decode", 412, metrics(3)), stats([(chat.tab.id, 70)]))
            await chat.pilot.pause()
        assert started.count(screen._panel_due) <= 1


async def test_one_line_says_what_makes_a_reply_slow(open_chat: Open) -> None:
    async with open_chat(size=LARGE) as chat:
        await chat.shows("nothing is slow")
        request = await chat.send("A long paste")
        chat.client.accept(request)
        slow = Metrics(queue_s=0.1, ttft_s=3.0, e2e_s=3.0, prompt_tokens=4000)
        chat.client.emit(Progress(request, "decode", 4000, slow), stats([(chat.tab.id, 250)]))
        await chat.shows("prefill: 4,000 new tokens")

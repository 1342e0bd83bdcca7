"""What is asked of widgets to draw a part of the screen."""

from __future__ import annotations

from string import ascii_lowercase

from hypothesis import given
from hypothesis import strategies as some
from rich.color import Color
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widgets import Static

from kvchat.tui.compositor import FrontCompositor
from kvchat.tui.widgets.backdrop import Backdrop

SCREEN = Size(12, 6)


class Box:
    """Stands in for a widget that draws one letter all over its region."""

    def __init__(self, letter: str, region: Region) -> None:
        self.letter, self.region = letter, region
        self.parent: object | None = self
        self.asked: set[int] = set()
        """For which rows of the screen."""

    def render_lines(self, crop: Region) -> list[Strip]:
        self.asked |= {self.region.y + y for y in crop.line_range}
        return [Strip([Segment(self.letter * crop.width)], crop.width)] * crop.height


@some.composite
def regions(draw: some.DrawFn) -> Region:
    x, y = draw(some.integers(0, SCREEN.width - 1)), draw(some.integers(0, SCREEN.height - 1))
    return Region(x, y, draw(some.integers(1, SCREEN.width - x)), draw(some.integers(1, SCREEN.height - y)))


def compositor(boxes: list[Box], dirty: list[Region]) -> FrontCompositor:
    """Of boxes, the one in front first, that are to be drawn again in some regions."""
    compositor = FrontCompositor()
    compositor.size = SCREEN
    compositor._visible_widgets = {box: (box.region, SCREEN.region) for box in boxes}  # type: ignore[misc]
    compositor._dirty_regions = set(dirty)
    return compositor


def boxes_over_all(fronts: list[Region]) -> list[Box]:
    """The regions as boxes, before one that fills the screen."""
    return [Box(letter, region) for letter, region in zip(ascii_lowercase, [*fronts, SCREEN.region], strict=False)]


@given(some.lists(regions(), max_size=6), some.lists(regions(), min_size=1, max_size=4))
def test_what_changed_shows_the_box_in_front(fronts: list[Region], dirty: list[Region]) -> None:
    boxes = boxes_over_all(fronts)
    update = compositor(boxes, dirty).render_partial_update()
    assert update
    for region in dirty:
        for y in region.line_range:
            drawn = {x: strip.text for x, strip in update.chops[y].items() if strip}
            row = {start + column: letter for start, text in drawn.items() for column, letter in enumerate(text)}
            for x in region.column_range:
                assert row[x] == next(box.letter for box in boxes if box.region.contains(x, y))


@given(some.lists(regions(), max_size=6), some.lists(regions(), min_size=1, max_size=4))
def test_nobody_is_asked_for_what_is_not_to_be_drawn(fronts: list[Region], dirty: list[Region]) -> None:
    boxes = boxes_over_all(fronts)
    compositor(boxes, dirty).render_partial_update()
    for box in boxes:
        changed = {y for region in dirty for y in region.intersection(box.region).line_range}
        assert box.asked <= set(range(min(changed, default=0), max(changed, default=-1) + 1))


def test_what_others_cover_is_not_asked_for() -> None:
    left, right = Region(0, 0, 5, 6), Region(5, 0, 7, 4)
    boxes = boxes_over_all([left, right, SCREEN.region])
    compositor(boxes, [SCREEN.region]).render_partial_update()
    assert [sorted(box.asked) for box in boxes] == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3], [4, 5], []]


def test_who_was_taken_away_is_not_asked() -> None:
    gone, *others = boxes = boxes_over_all([Region(0, 0, 5, 6), SCREEN.region])
    gone.parent = None
    compositor(boxes, [SCREEN.region]).render_partial_update()
    assert not gone.asked and others[0].asked == {0, 1, 2, 3, 4, 5}


def test_without_a_change_nothing_is_drawn() -> None:
    assert compositor(boxes_over_all([]), []).render_partial_update() is None


class Covered(Vertical, Backdrop):
    pass


async def cells(container: type[Vertical]) -> list[tuple[str, Color | None, Color | None]]:
    """The characters and colours of a screen on which a container is seen around and below two texts."""

    class Screen(App[None]):
        CSS = """
        .around { border-left: outer red; background: blue; padding: 1 2; height: 8; }
        Static { margin-bottom: 1; width: 50%; }
        """

        def compose(self) -> ComposeResult:
            with container(classes="around"):
                yield Static("one")
                yield Static("two")

    async with Screen().run_test(size=(30, 10)) as pilot:
        segments = [segment for strip in pilot.app.screen._compositor.render_strips() for segment in strip]
    return [(cell, style.color, style.bgcolor) for text, style, _ in segments if style for cell in text]


async def test_a_backdrop_looks_as_if_all_its_rows_were_rendered() -> None:
    assert await cells(Covered) == await cells(Vertical)

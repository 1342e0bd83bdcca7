"""Long Markdown in sections, and what of a list of heights is drawn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvchat.tui.widgets.extents import Extents, View
from kvchat.tui.widgets.sections import FIRST, HARD_LIMIT, LIMIT, Section, following

LINES = st.lists(
    st.sampled_from(["", "word " * 30, "- item", "```", "```python", "~~~~", "| a | b |", "|---|---|", "    indented"])
    | st.integers(0, 3 * HARD_LIMIT).map(lambda length: "x y" * (length // 3)),
    max_size=400,
)


def sections(text: str) -> list[Section]:
    found = [FIRST]
    while section := following(text, found[-1]):
        found.append(section)
    return found


def parts(text: str) -> list[str]:
    starts = [section.start for section in sections(text)]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


@given(LINES)
def test_no_section_is_longer_than_the_limit_and_nothing_is_lost(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert "".join(parts(text)) == text
    assert all(len(part.rstrip("\n")) <= HARD_LIMIT for part in parts(text))


@given(LINES, st.floats(0, 1))
def test_sections_stay_as_they_are_while_the_text_grows(lines: list[str], share: float) -> None:
    text = "\n".join(lines)
    early = sections(text[: int(share * len(text))])
    assert sections(text)[: len(early)] == early


def test_a_short_text_is_one_section() -> None:
    assert sections("word " * 100) == [FIRST]


def test_a_section_ends_between_two_paragraphs() -> None:
    paragraphs = "\n\n".join(["word " * 100] * 20)
    assert all(part.endswith("\n\n") for part in parts(paragraphs)[:-1])


def test_code_goes_on_as_code_of_its_language() -> None:
    text = "intro\n\n```python\n" + "x = 1\n" * LIMIT + "```\nend"
    [_, *rest] = sections(text)
    assert {section.opening for section in rest} == {"```python\n"}


def test_what_comes_after_code_is_not_code() -> None:
    text = "```\n" + "x = 1\n" * LIMIT + "```\n" + "\n\n".join(["word " * 100] * 20)
    assert sections(text)[-1].opening == ""


def test_a_table_goes_on_with_its_head() -> None:
    head = "| a | b |\n|---|---|\n"
    [_, *rest] = sections(head + "| 1 | 2 |\n" * LIMIT)
    assert rest and {section.opening for section in rest} == {head}


def test_an_endless_line_is_cut_between_words() -> None:
    assert all(part.endswith("word ") for part in parts("word " * HARD_LIMIT)[:-1])


def test_what_is_drawn_covers_the_view_and_changes_only_when_that_is_needed() -> None:
    extents = Extents([10] * 100)
    drawn = View(500, 20).wanted(extents, range(0))
    assert extents.tops[drawn.start] <= 480 and extents.tops[drawn.stop] >= 540
    assert View(505, 20).wanted(extents, drawn) == drawn
    assert View(600, 20).wanted(extents, drawn) != drawn


@given(st.lists(st.integers(1, 500), max_size=50), st.integers(-100, 10_000), st.integers(1, 100))
def test_something_is_drawn_wherever_the_view_is(heights: list[int], top: int, height: int) -> None:
    drawn = View(top, height).wanted(Extents(heights), range(0))
    assert bool(drawn) == bool(heights)
    assert View(top, height).wanted(Extents(heights), drawn) == drawn

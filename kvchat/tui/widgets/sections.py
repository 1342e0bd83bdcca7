"""Long Markdown in sections of bounded length, so that what is drawn of a reply does not grow with the reply."""

from __future__ import annotations

import re
from dataclasses import dataclass

LIMIT = 4_000
"""Characters, above which a section ends at the next good place: between two blocks, or within code or a table."""
HARD_LIMIT = 6_000
"""Above which it ends at any line, or if there is none at any word."""
LINE = 40
"""A line outside code counts as so many characters more: it can be a widget of its own."""

_FENCE = re.compile(r" *(`{3,}|~{3,})")
_TABLE_RULE = re.compile(r" {0,3}\|?[ :|-]*-[ :|-]*\|[ :|-]*$")


@dataclass(frozen=True, slots=True)
class Section:
    """From `start` to the start of the next section."""

    start: int
    opening: str = ""
    """The lines that open what the cut went through once more: those of a fence, or of a table's head."""


FIRST = Section(0)


def following(text: str, section: Section) -> Section | None:
    """The section after this one, None while this one is the last. More text behind `text` does not change it."""
    fence = section.opening if _FENCE.match(section.opening) else ""
    table = "" if fence else section.opening
    before, start, length = "", section.start, 0
    while start < len(text):
        line, newline, _ = text[start : start + HARD_LIMIT + 1].partition("\n")
        if length >= LIMIT and (fence or table or (not before.strip() and line[:1].strip())):
            return Section(start, fence or table)
        if length >= HARD_LIMIT:
            return Section(start)
        if length + len(line) > HARD_LIMIT:
            if length:
                return Section(start, fence or table)
            return Section(start + (line.rfind(" ", 0, HARD_LIMIT) + 1 or HARD_LIMIT), fence)
        if not newline:
            return None
        fence = _fence_after(line, fence)
        if not fence:
            if _TABLE_RULE.match(line) and "|" in before:
                table = f"{before}\n{line}\n"
            elif "|" not in line:
                table = ""
        before, start = line, start + len(line) + 1
        length += len(line) + (1 if fence else LINE)
    return None


def _fence_after(line: str, fence: str) -> str:
    """The line that opened the fence which is open after `line`, empty when none is."""
    mark = _FENCE.match(line)
    if not fence:
        return f"{line}\n" if mark else ""
    opened = _FENCE.match(fence)
    closes = mark and opened and mark[1].startswith(opened[1]) and not line[mark.end() :].strip(mark[1][0] + " ")
    return "" if closes else fence

"""The KV pool, block by block, coloured by owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.events import MouseMove
from textual.widget import Widget

from engine.api import BLOCK_CACHED, BLOCK_FREE, BLOCK_OWNED, BLOCK_SHARED, EngineStats
from kvchat.tui.format import count
from kvchat.tui.widgets.meters import quiet


@dataclass(frozen=True, slots=True)
class Owner:
    """A kind of owner: how it is named, coloured and, where there is no colour, told apart."""

    name: str
    variable: str
    glyph: str


SHARED = Owner("shared", "$kv-shared", "◆")
OWN = Owner("this tab", "$kv-own", "■")
OTHER = Owner("other", "$kv-other", "▣")
CACHED = Owner("cached", "$kv-cached", "▪")
FREE = Owner("free", "$kv-free", "·")
OWNERS = (OWN, OTHER, SHARED, CACHED, FREE)


def count_owners(blocks: bytes, own_code: int | None) -> dict[Owner, int]:
    """How many of `blocks` (codes of EngineStats.block_map) each kind of owner has."""
    shared, cached, free = (blocks.count(code) for code in (BLOCK_SHARED, BLOCK_CACHED, BLOCK_FREE))
    own = 0 if own_code is None else blocks.count(own_code)
    other = len(blocks) - shared - cached - free - own
    return {OWN: own, OTHER: other, SHARED: shared, CACHED: cached, FREE: free}


def own_code(stats: EngineStats, owner: str) -> int | None:
    """The code of `owner` in the block map; None if it owns nothing."""
    return BLOCK_OWNED + stats.owners.index(owner) if owner in stats.owners else None


def draw(blocks: bytes, own_code: int | None, cells: int) -> tuple[list[Owner], int]:
    """At most `cells` cells, and how many blocks each stands for: a power of two, just enough to show every block that
    is not free. What does not fit behind the last of those is free.

    A cell shows whose most of its blocks are, free ones aside: a nearly empty pool still shows who is there.
    """
    cells = max(1, cells)
    per_cell = 1
    while per_cell * cells < len(blocks.rstrip(bytes([BLOCK_FREE]))):
        per_cell *= 2
    drawn = []
    for start in range(0, min(len(blocks), per_cell * cells), per_cell):
        counts = count_owners(blocks[start : start + per_cell], own_code)
        owner = max(OWNERS[:-1], key=counts.__getitem__)
        drawn.append(owner if counts[owner] else FREE)
    return drawn, per_cell


class BlockMap(Widget):
    """Draws the pool of the last snapshot into the space it has."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks = b""
        self._own_code: int | None = None
        self._names: Sequence[str] = ()
        self._columns = self._per_cell = 1
        """Of the last drawing."""

    def show(self, blocks: bytes, own_code: int | None, names: Sequence[str]) -> None:
        """Draw this snapshot from now on; `names` are those of the owners, in the order of their codes."""
        self._blocks, self._own_code, self._names = blocks, own_code, names
        self.refresh()

    def on_mouse_move(self, event: MouseMove) -> None:
        """Name whose the block under the mouse is."""
        offset = event.get_content_offset(self)
        beside = len(self._blocks)
        start = beside if offset is None else (offset.y * self._columns + offset.x // 2) * self._per_cell
        blocks = self._blocks[start : start + self._per_cell]
        self.tooltip = Content(self._describe(start, blocks)) if blocks else None

    def _describe(self, start: int, blocks: bytes) -> str:
        last = start + len(blocks) - 1
        where = f"block {count(start)}" if start == last else f"blocks {count(start)} to {count(last)}"
        return "\n".join([where, *(self._owner_name(code) for code in dict.fromkeys(blocks))])

    def _owner_name(self, code: int) -> str:
        if code < BLOCK_OWNED:
            return {BLOCK_FREE: "free", BLOCK_CACHED: "cached, of no running reply", BLOCK_SHARED: "shared"}[code]
        owner = code - BLOCK_OWNED
        return self._names[owner] if owner < len(self._names) else "another conversation"

    def render(self) -> Content:
        columns, rows = max(1, (self.content_size.width + 1) // 2), self.content_size.height - 1
        drawn, per_cell = draw(self._blocks, self._own_code, columns * rows)
        self._columns, self._per_cell = columns, per_cell
        lines = [
            Content(" ").join(Content.styled(cell.glyph, cell.variable) for cell in drawn[start : start + columns])
            for start in range(0, len(drawn), columns)
        ]
        shown, total = min(len(self._blocks), len(drawn) * per_cell), len(self._blocks)
        if per_cell > 1 or shown < total:
            scale = "1 block" if per_cell == 1 else f"{count(per_cell)} blocks"
            lines.append(quiet(f"{scale} a cell, {count(shown)} of {count(total)}"))
        return Content("\n").join(lines)

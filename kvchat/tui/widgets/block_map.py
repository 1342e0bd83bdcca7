"""The KV pool, block by block, coloured by owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from textual.binding import Binding
from textual.content import Content
from textual.events import Click, MouseMove
from textual.message import Message

from engine.api import BLOCK_CACHED, BLOCK_FREE, BLOCK_OWNED, BLOCK_SHARED, EngineStats
from kvchat.tui.format import count
from kvchat.tui.widgets.lines import Lines
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


class BlockMap(Lines, can_focus=True):
    """Draws the pool of the last snapshot into the space it has. The mouse and, while it has the keys, a cursor name
    whose a block is, and choose it."""

    BINDINGS = [
        Binding("left", "move(-1, 0)", "Move", show=False),
        Binding("right", "move(1, 0)", "Move", show=False),
        Binding("up", "move(0, -1)", "Move", show=False),
        Binding("down", "move(0, 1)", "Move", show=False),
        Binding("enter", "choose", "Go to its tab", show=False),
        Binding("escape", "leave", "Back to the message", show=False),
    ]

    class OwnerWanted(Message):
        """The user wants to see this conversation."""

        def __init__(self, conversation_id: str) -> None:
            super().__init__()
            self.conversation_id = conversation_id

    class Left(Message):
        """The keys are the composer's again."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks = b""
        self._own_code: int | None = None
        self._owners: Sequence[tuple[str, str]] = ()
        self._columns = self._per_cell = 1
        """Of the last drawing."""
        self._cursor = 0
        """A cell."""

    def show(self, blocks: bytes, own_code: int | None, owners: Sequence[tuple[str, str]]) -> None:
        """Draw this snapshot from now on; `owners` are the ids and the names of the owners, in the order of their
        codes."""
        if (blocks, own_code, owners) != (self._blocks, self._own_code, self._owners):
            self._blocks, self._own_code, self._owners = blocks, own_code, owners
            self.redraw()

    def on_mouse_move(self, event: MouseMove) -> None:
        """Name whose the block under the mouse is."""
        cell = self._cell_at(event)
        blocks = b"" if cell is None else self._blocks_of(cell)
        self.tooltip = Content("\n".join(self._describe(cell or 0))) if blocks else None

    def on_click(self, event: Click) -> None:
        """Go to the tab whose block was clicked."""
        if (cell := self._cell_at(event)) is not None:
            self._choose(cell)

    def action_move(self, right: int, down: int) -> None:
        cells = -(-len(self._blocks) // self._per_cell)
        self._cursor = min(max(0, self._cursor + right + down * self._columns), max(0, cells - 1))
        self.redraw()

    def action_choose(self) -> None:
        self._choose(self._cursor)

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def _choose(self, cell: int) -> None:
        owners = [code - BLOCK_OWNED for code in self._blocks_of(cell) if code >= BLOCK_OWNED]
        if owners and owners[0] < len(self._owners):
            self.post_message(self.OwnerWanted(self._owners[owners[0]][0]))

    def _cell_at(self, event: MouseMove | Click) -> int | None:
        offset = event.get_content_offset(self)
        return None if offset is None else offset.y * self._columns + offset.x // 2

    def _blocks_of(self, cell: int) -> bytes:
        return self._blocks[cell * self._per_cell : (cell + 1) * self._per_cell]

    def _describe(self, cell: int) -> list[str]:
        """Which blocks a cell stands for, and whose they are."""
        blocks, start = self._blocks_of(cell), cell * self._per_cell
        last = start + len(blocks) - 1
        where = f"block {count(start)}" if start == last else f"blocks {count(start)} to {count(last)}"
        return [where, *(self._owner_name(code) for code in dict.fromkeys(blocks))]

    def _owner_name(self, code: int) -> str:
        if code < BLOCK_OWNED:
            return {BLOCK_FREE: "free", BLOCK_CACHED: "cached", BLOCK_SHARED: "shared"}[code]
        owner = code - BLOCK_OWNED
        return self._owners[owner][1] if owner < len(self._owners) else "another conversation"

    def lines(self, width: int) -> Sequence[Content]:
        columns, rows = max(1, (width + 1) // 2), self.size.height - 1
        drawn, per_cell = draw(self._blocks, self._own_code, columns * rows)
        self._columns, self._per_cell = columns, per_cell
        cursor = min(self._cursor, len(drawn) - 1) if drawn and self.has_focus else None
        lines = [_line(drawn[start : start + columns]) for start in range(0, len(drawn), columns)]
        if cursor is not None:
            line, cell = divmod(cursor, columns)
            lines[line] = lines[line].stylize("reverse", 2 * cell, 2 * cell + 1)
            return [*lines, Content(": ".join(self._describe(cursor)))]
        shown, total = min(len(self._blocks), len(drawn) * per_cell), len(self._blocks)
        if per_cell > 1 or shown < total:
            lines.append(quiet(f"{count(per_cell)} a cell, {count(shown)} of {count(total)}"))
        return lines


def _line(cells: Sequence[Owner]) -> Content:
    """One row of the map, with one piece for all cells in a row that have one owner: it is drawn again and again."""
    runs = [(owner, len(list(same))) for owner, same in groupby(cells)]
    return Content(" ").join(Content.styled(" ".join(owner.glyph * length), owner.variable) for owner, length in runs)

"""Textual's compositor, without the work that nobody sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import cast

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip

Span = tuple[int, int, int]
"""A row, its first column, and the one behind its last."""


class FrontCompositor(Compositor):
    """Asks widgets only for lines that are to be drawn and that nothing in front covers.

    Textual asks every widget that touches the box around all changes for all its lines, ten times a second while a
    reply streams: each of the containers around it for a screen of blanks, and whatever lies between two changes.
    """

    def render_partial_update(self) -> ChopsUpdate | None:
        regions = [region.intersection(self.size.region) for region in self._dirty_regions]
        self._dirty_regions.clear()
        spans = list(self._regions_to_spans(regions))
        return ChopsUpdate(self._chops(spans), spans, [cuts[1:] for cuts in self.cuts]) if spans else None

    def _render_chops(self, crop: Region, is_rendered_line: Callable[[int], bool]) -> Sequence[Mapping[int, Strip]]:
        spans = ((y, crop.x, crop.right) for y in crop.line_range if is_rendered_line(y))
        return cast("Sequence[Mapping[int, Strip]]", self._chops(spans))

    def _chops(self, spans: Iterable[Span]) -> Sequence[Mapping[int, Strip | None]]:
        """What stands in the spans: for each row, a strip by the column of each cut that it begins at."""
        cuts = self.cuts
        chops: list[dict[int, Strip | None]] = [dict.fromkeys(row[:-1]) for row in cuts]
        missing: list[set[int]] = [set() for _ in cuts]
        for y, left, right in spans:
            missing[y].update(start for start, end in pairwise(cuts[y]) if start < right and end > left)
        for widget, (region, clip) in self.visible_widgets.items():  # from the front to the back
            seen = region.intersection(clip)
            left, right = seen.column_span
            rows = [y for y in seen.line_range if any(left <= start < right for start in missing[y])]
            if not rows or widget.parent is None:  # one that was taken away is in the map up to the next layout
                continue
            top = rows[0]
            strips = widget.render_lines(Region(seen.x - region.x, top - region.y, seen.width, rows[-1] + 1 - top))
            for y in rows:
                starts = [cut for cut in cuts[y] if left <= cut < right]
                pieces = strips[y - top].divide([cut - left for cut in (*starts[1:], right)])
                for start, piece in zip(starts, pieces, strict=False):  # a strip can be shorter than its widget
                    if start in missing[y]:
                        missing[y].remove(start)
                        chops[y][start] = piece
        return chops

"""Widgets that others cover."""

from __future__ import annotations

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Backdrop(Widget):
    """Is seen only between and beside its children, where all its rows are the same: one is rendered for all of them.

    To be named last of the bases: Textual takes the styles of the first.
    """

    def render_lines(self, crop: Region) -> list[Strip]:
        return super().render_lines(Region(crop.x, crop.y, crop.width, 1)) * crop.height

"""Widgets that are laid out once."""

from __future__ import annotations

from textual.geometry import Size
from textual.reactive import Reactive
from textual.widget import Widget


class Unscrolled(Widget):
    """Never has a scroll bar. To be named last of the bases: Textual takes the styles of the first.

    Textual lays the whole screen out again after every change of a virtual size, which only a scroll bar needs; a
    reply that streams grows ten times a second.
    """

    virtual_size = Reactive(Size(0, 0), repaint=False, layout=False)

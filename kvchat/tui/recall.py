"""Up and Down in the composer: a walk over what the user sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


class Recall:
    """Where the walk is. It begins at the empty composer, and a recalled text that was changed ends it."""

    def __init__(self) -> None:
        self._back = 0
        """How many texts before the empty composer."""

    def step(self, sent: Sequence[str], shown: str, step: int) -> str | None:
        """The text that comes `step` after what is shown now, -1 for the one before; None when there is none, or when
        what is shown was not recalled. `sent`: first to last; what was sent twice in a row counts once."""
        texts = ["", *(text for text, _ in groupby(reversed(sent)))]
        if not shown:
            self._back = 0
        back = self._back - step
        if shown not in texts[self._back : self._back + 1] or not 0 <= back < len(texts):
            return None
        self._back = back
        return texts[back]

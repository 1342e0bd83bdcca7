"""Token ids back to text, one at a time, without a half character and without a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from engine.tokenizer import Tokenizer


class Detokenizer:
    """The text of one reply. The deltas of `push` and `finish` together are always `text`.

    A character is shown when its last byte is there; bytes that are no UTF-8 become one U+FFFD each time they are
    known to be none. Of the stop strings the first to be complete ends the text before it (of two that end at the
    same place, the longer), so the text does not depend on how it was cut into tokens.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._drop_space = tokenizer.leading_space
        self.text = ""
        self.stopped = False
        """A stop string was found; nothing follows."""

    def push(self, token_id: int) -> str:
        """The text that this token makes certain. Special and end-of-sequence tokens have none."""
        if token_id in self._tokenizer.special_ids:
            return ""
        return self._advance(self._utf8.decode(self._tokenizer.token_bytes(token_id)))

    def finish(self) -> str:
        """The rest of the text: a held back part of a stop string, and U+FFFD for an unfinished character."""
        return self._advance(self._utf8.decode(b"", final=True), final=True)

    def _advance(self, new: str, final: bool = False) -> str:
        if self.stopped:
            return ""
        if new and self._drop_space:
            new, self._drop_space = new.removeprefix(" "), False
        self._held += new
        keep = len(self._held)
        found = [(at + len(stop), at) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            keep = min(found)[1]
        elif not final:
            keep -= max((_overlap(self._held, stop) for stop in self._stop), default=0)
        delta, self._held = self._held[:keep], self._held[keep:]
        self.text += delta
        return delta


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` that could be the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)

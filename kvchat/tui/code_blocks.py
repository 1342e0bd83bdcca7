"""The code in a reply."""

from __future__ import annotations

from dataclasses import dataclass

from kvchat.tui.format import count, printable, shorten

SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class CodeBlock:
    language: str
    """What the reply calls it; empty when it does not."""
    code: str

    @property
    def title(self) -> str:
        """One line to choose it by."""
        lines = self.code.splitlines()
        first = next((line.strip() for line in lines if line.strip()), "")
        size = f"{count(len(lines))} line" + "s" * (len(lines) != 1)
        return printable(" · ".join(filter(None, [self.language, size, shorten(first, SHOWN_CHARACTERS)])))


def may_have_code(text: str) -> bool:
    """Whether it is worth the time to look for code."""
    return any(mark in text for mark in ("```", "~~~", "    "))


def code_blocks(text: str) -> list[CodeBlock]:
    """The fenced and indented code of Markdown, in its order; an unfinished block at the end is one too."""
    if not may_have_code(text):
        return []
    from kvchat.tui.widgets.markdown import parser  # brings Markdown, which the first paint does without

    tokens = [token for token in parser().parse(text) if token.type in ("fence", "code_block")]
    return [CodeBlock(token.info.strip().partition(" ")[0], token.content.rstrip("\n")) for token in tokens]

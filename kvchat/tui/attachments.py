"""Text files that go along with a message: ordinary text in a fenced block, under the name of the file."""

from __future__ import annotations

import re
from pathlib import Path

from kvchat.tui.format import size, typed

MAX_BYTES = 1 << 20
_HEADING = re.compile(r"File `([^`\n]+)`:\n\n`{3,}")


class AttachmentError(Exception):
    """A file cannot be attached; one line that names it."""


def read_attachment(path: Path) -> str:
    """The text that stands for a file in a message. Raises AttachmentError for one that is missing, larger than
    MAX_BYTES, binary or not UTF-8."""
    try:
        if not path.is_file():
            raise AttachmentError(f"{path}: {'not a file' if path.exists() else 'there is no such file'}")
        if (length := path.stat().st_size) > MAX_BYTES:
            raise AttachmentError(f"{path}: {size(length)} is too large, at most {size(MAX_BYTES)} can be attached")
        content = path.read_bytes()
    except OSError as error:
        raise AttachmentError(f"{path}: cannot be read: {error.strerror}") from error
    if b"\0" in content:
        raise AttachmentError(f"{path}: a binary file; only text can be attached")
    try:
        text = typed(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise AttachmentError(f"{path}: not UTF-8 at byte {error.start}") from error
    if not text.strip():
        raise AttachmentError(f"{path}: the file is empty")
    name = typed(path.name).replace("`", "'").replace("\n", " ")
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text) or [""]))
    return f"File `{name}`:\n\n{fence}{path.suffix[1:]}\n{text.rstrip()}\n{fence}"


def attached_name(text: str) -> str:
    """The name of the file that a text stands for; empty when it is another text."""
    match = _HEADING.match(text)
    return match[1] if match else ""

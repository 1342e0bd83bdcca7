"""What could stand at the cursor of the composer: commands, their arguments, paths of files. Knows no widget."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvchat.tui.attachments import MAX_BYTES
from kvchat.tui.estimate import BYTES_PER_TOKEN
from kvchat.tui.format import count, size
from kvchat.tui.slash import Choice, SlashCommand

MAX_PATHS = 50
_PATH = re.compile(r"(?:^|(?<=\s))@(\S*)$")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that can be put in at the cursor."""

    label: str
    about: str
    text: str
    """What replaces the last `replaces` characters before the cursor."""
    replaces: int
    final: bool = False
    """A command that is complete with it."""
    path: Path | None = None
    """A file to attach; `text` is empty then."""

    @property
    def is_written(self) -> bool:
        """Nothing but the space behind it is missing."""
        return self.replaces == len(self.text.rstrip())


def path_candidates(before: str) -> list[Candidate]:
    """Files and folders for an @path that ends `before`, the text up to the cursor; folders first, dotfiles only when
    asked for."""
    match = _PATH.search(before)
    if not match:
        return []
    folder, name = os.path.split(match[1])
    try:
        entries = sorted(
            os.scandir(os.path.expanduser(folder) or "."), key=lambda entry: (not entry.is_dir(), entry.name)
        )
    except OSError:
        return []  # not a folder: what was typed is a word like any other
    found = []
    for entry in entries:
        if not entry.name.lower().startswith(name.lower()) or (entry.name[0] == "." and name[:1] != "."):
            continue
        if " " in entry.name and entry.is_dir():
            continue  # the path would end at the space
        if entry.is_dir():
            text = f"@{os.path.join(folder, entry.name)}/"
            found.append(Candidate(entry.name + "/", "folder", text, len(match[0])))
        elif entry.is_file():
            about = _about_file(entry.stat().st_size)
            found.append(Candidate(entry.name, about, "", len(match[0]), path=Path(entry.path)))
    return found[:MAX_PATHS]


def _about_file(length: int) -> str:
    if length > MAX_BYTES:
        return f"{size(length)}: too large to attach"
    return f"{size(length)} · about {count(-(-length // BYTES_PER_TOKEN))} tokens"


def command_candidates(before: str, commands: Sequence[SlashCommand]) -> list[Candidate]:
    """Commands whose name begins as `before` does after its slash."""
    match = re.fullmatch(r"/(\w*)", before)
    if not match:
        return []
    return [
        Candidate(each.usage, each.about, f"/{each.name}{' ' if each.argument else ''}", len(before), not each.argument)
        for each in commands
        if each.name.startswith(match[1])
    ]


def argument_candidates(before: str, choices: Sequence[Choice]) -> list[Candidate]:
    """Arguments of a command that begin as the word after it does, without the one that is written out already."""
    match = re.fullmatch(r"/\w+ (\S*)", before)
    if not match:
        return []
    typed = match[1]
    return [
        Candidate(text.strip(), about, text, len(typed))
        for text, about in choices
        if text.startswith(typed) and text != typed
    ]

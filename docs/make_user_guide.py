"""Renews the lists in docs/USER_GUIDE.md from the program itself: `make guide`.

The prose between them is written by hand. A list stands between `<!-- NAME -->` and `<!-- /NAME -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click
from textual.binding import Binding

from kvchat.cli.root import root
from kvchat.personas import shipped_personas
from kvchat.tui import keys
from kvchat.tui.screens.cost import CostScreen
from kvchat.tui.screens.persona_form import PersonaForm
from kvchat.tui.screens.personas import PersonaScreen
from kvchat.tui.slash import COMMANDS
from kvchat.tui.themes import shipped_themes
from kvchat.tui.widgets.finder import Finder

GUIDE = Path(__file__).parent / "USER_GUIDE.md"

_SHORT = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn"}
DIALOGS = {
    "In the list of personas": PersonaScreen,
    "In the form of a persona": PersonaForm,
    "In the history and the sidebar": Finder,
    "Where the time of a reply went": CostScreen,
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield from ("| " + " | ".join(head) + " |", "|" + "---|" * len(head))
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def key_lists() -> Iterator[str]:
    rebindable = {binding.id for binding in keys.rebindable()}
    for title, bindings in keys.sections({}).items():
        yield from (f"**{title}**", "")
        rows = []
        for _, [*same] in groupby(Binding.make_bindings(bindings), key=lambda binding: binding.action):
            first = same[0]
            pressed = first.key_display or ",".join(binding.key for binding in same)
            name = f"`{first.id}`" if first.id in rebindable else ""
            if first.key_display:
                name = "`tab_1` … `tab_9`"
            rows.append((spelled(pressed), first.tooltip or first.description, name))
        yield from (*table(("key", "does", "name in `[keys]`"), rows), "")
    for title, screen in DIALOGS.items():
        named = [binding for binding in Binding.make_bindings(screen.BINDINGS) if binding.description]
        rows = []
        for _, [*same] in groupby(named, key=lambda binding: binding.action):
            rows.append((spelled(",".join(each.key for each in same)), same[0].tooltip or same[0].description))
        yield from (f"**{title}**", "", *table(("key", "does"), rows), "")


def spelled(pressed: str) -> str:
    """ "ctrl+n,f4" -> "Ctrl+N, F4"."""
    return ", ".join("+".join(_SHORT.get(part, part.title()) for part in key.split("+")) for key in pressed.split(","))


def commands() -> Iterator[str]:
    yield from table(("command", "does"), ((f"`{command.usage}`", command.about) for command in COMMANDS))


def programs() -> Iterator[str]:
    yield from program(root, "kvchat")


def program(command: click.Command, path: str) -> Iterator[str]:
    """A command, its options, and the commands below it."""
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"**`{path} {usage}`**", "", click.unstyle(" ".join((command.help or "").split())), "")
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if options:
        rows = []
        for option in options:
            names = ", ".join(option.opts)
            rows.append((f"`{names} {option.metavar}`" if option.metavar else f"`{names}`", option.help or ""))
        yield from (*table(("option", "does"), rows), "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below and not below.hidden:
                yield from program(below, f"{path} {name}")


def personas() -> Iterator[str]:
    rows = ((f"`{persona.name}`", persona.description) for persona in shipped_personas())
    yield from table(("name", "what for"), rows)


def themes() -> Iterator[str]:
    kinds = ((theme, "16 colours" if theme.ansi else "dark" if theme.dark else "light") for theme in shipped_themes())
    yield from table(("name", "kind"), ((f"`{theme.name}`", kind) for theme, kind in kinds))


LISTS: dict[str, Callable[[], Iterator[str]]] = {
    "keys": key_lists,
    "commands": commands,
    "programs": programs,
    "personas": personas,
    "themes": themes,
}


def renewed(guide: str) -> str:
    """The text with every list as the program has it now. Raises ValueError when it lacks the place for one."""
    for name, lines in LISTS.items():
        place = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        content = "\n".join(lines()).strip()
        guide, found = place.subn(lambda match, content=content: f"{match[1]}\n{content}\n\n{match[2]}", guide)
        if found != 1:
            raise ValueError(f"{GUIDE} has {found} places for the list {name!r}, not one")
    return guide


def main() -> None:
    guide = renewed(GUIDE.read_text())
    GUIDE.write_text(guide)
    print(f"{GUIDE}: {len(guide.splitlines())} lines", file=sys.stderr)


if __name__ == "__main__":
    main()

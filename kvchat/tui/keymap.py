"""Keys of the user's choice, in place of those that kvchat comes with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from textual.binding import Binding
from textual.keys import Keys

from kvchat.toml_file import TomlFile
from kvchat.tui import keys

TYPING = frozenset(
    ["enter", "tab", "backspace", "delete", "up", "down", "left", "right", "home", "end", "space"]
    + ["ctrl+i", "ctrl+m", "ctrl+h", "ctrl+j", "shift+enter", "alt+enter"]
)
"""What the message is written with; of some of them terminals send the same as of others."""

_NAMED = frozenset(str(key.value) for key in Keys if "+" not in key.value and not key.value.startswith("<"))
_MODIFIERS = re.compile(r"(?:ctrl\+|alt\+|shift\+|super\+)*")


def keymap_of(file: TomlFile) -> dict[str, str]:
    """The table [keys] of the settings: the id of a binding, and its keys, separated by commas. Raises ConfigError."""
    bindings = {str(binding.id): binding for binding in keys.rebindable()}
    given = file.table("keys", dict.fromkeys(bindings, str))
    chosen = {name: [key.strip().lower() for key in value.split(",")] for name, value in given.items()}
    for name, its_keys in chosen.items():
        for key in its_keys:
            if problem := _problem(key):
                raise file.error("keys", name, problem)
    owners: dict[str, str] = {}
    for name in [*(name for name in bindings if name not in chosen), *chosen]:
        for key in chosen.get(name) or bindings[name].key.split(","):
            if other := owners.get(key):
                raise file.error("keys", name, f"'{key}' is the key of {other} already: give that one another key")
            owners[key] = name
    return {name: ",".join(its_keys) for name, its_keys in chosen.items()}


def rebound(bindings: Iterable[Binding], keymap: Mapping[str, str]) -> list[Binding]:
    """The bindings with the keys that they have now."""
    return [
        binding.with_key(keymap[binding.id]) if binding.id and binding.id in keymap else binding for binding in bindings
    ]


def spelled(name: str, keymap: Mapping[str, str]) -> str:
    """The first key of a binding as a text names it: Ctrl+T, F9."""
    [binding] = rebound((each for each in keys.rebindable() if each.id == name), keymap)
    return "+".join(part.title() for part in binding.key.partition(",")[0].split("+"))


def _problem(key: str) -> str:
    """Why a key cannot be used; empty when it can."""
    modifiers = _MODIFIERS.match(key)
    base = key[modifiers.end() :] if modifiers else key
    if key in TYPING:
        return f"'{key}' is needed to write a message"
    if not base or not (len(base) == 1 or base in _NAMED):
        return f'expected a key such as "ctrl+t", "alt+r" or "f7", got "{key}"'
    if key in (base, f"shift+{base}") and len(base) == 1:
        return f"'{key}' could not be written any more: add ctrl or alt"
    return ""

"""Theme files: TOML in, textual Theme objects out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import Theme

from kvchat.toml_file import ConfigError, TomlFile

_TOP = {"name": str, "dark": bool, "colors": dict, "blocks": dict, "variables": dict[str, str]}
_COLORS = (
    "primary",
    "secondary",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "success",
    "warning",
    "error",
)
_BLOCKS = ("shared", "own", "other", "cached", "free")
"""Owners in the block map: each becomes a variable, `kv-shared` and so on."""


@cache
def shipped_themes() -> list[Theme]:
    """The themes that come with kvchat, by name."""
    return load_themes(resources.files("themes").iterdir())


def block_colors(dark: bool) -> dict[str, str]:
    """The block map's variables, for a theme that has none."""
    theme = next(theme for theme in shipped_themes() if theme.dark == dark)
    return {name: color for name, color in theme.variables.items() if name.startswith("kv-")}


def load_themes(files: Iterable[Traversable]) -> list[Theme]:
    """Every *.toml among `files`. Raises ConfigError at the first bad one."""
    found = sorted((file for file in files if file.name.endswith(".toml")), key=lambda file: file.name)
    return [load_theme(file) for file in found]


def load_theme(path: Traversable) -> Theme:
    """Read one theme. Raises ConfigError, which names the file, the key and what was expected there."""
    file = TomlFile(path)
    top = file.table("", _TOP)
    for key in ("name", "dark"):
        if key not in top:
            raise ConfigError(f"{path}: key '{key}': missing")
    blocks = _palette(file, path, "blocks", _BLOCKS)
    colors: dict[str, Any] = dict(_palette(file, path, "colors", _COLORS))
    variables = top.get("variables", {}) | {f"kv-{owner}": color for owner, color in blocks.items()}
    return Theme(name=top["name"], dark=top["dark"], **colors, variables=variables)


def _palette(file: TomlFile, path: Traversable, table: str, keys: tuple[str, ...]) -> dict[str, str]:
    colors = file.table(table, dict.fromkeys(keys, str))
    for key in keys:
        if key not in colors:
            raise ConfigError(f"{path}: key '{table}.{key}': missing, expected a colour such as \"#73b8c9\"")
        try:
            Color.parse(colors[key])
        except ColorParseError:
            raise ConfigError(
                f'{path}: key \'{table}.{key}\': expected a colour such as "#73b8c9", got "{colors[key]}"'
            ) from None
    return colors

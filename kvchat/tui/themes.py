"""Theme files: TOML in, textual Theme objects out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from textual.color import Color, ColorParseError
from textual.css.constants import VALID_STYLE_FLAGS
from textual.theme import Theme

from kvchat import paths
from kvchat.toml_file import ConfigError, TomlFile

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_TOP = {"name": str, "dark": bool, "ansi": bool, "colors": dict, "blocks": dict, "variables": dict[str, str]}
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


def user_themes() -> tuple[list[Theme], dict[Path, ConfigError]]:
    """The themes in the user's folder, and what is wrong with the files that cannot be used."""
    themes, problems = [], {}
    for file in user_theme_files():
        try:
            themes.append(load_theme(file))
        except ConfigError as problem:
            problems[file] = problem
    return themes, problems


def user_theme_files() -> list[Path]:
    """themes/*.toml beside the settings."""
    return sorted((paths.config_dir() / "themes").glob("*.toml"))


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
    if not _NAME.fullmatch(top["name"]):
        raise file.error("", "name", f"expected small letters, digits and -, got '{top['name']}'")
    blocks = _palette(file, path, "blocks", _BLOCKS)
    colors: dict[str, Any] = dict(_palette(file, path, "colors", _COLORS))
    variables = top.get("variables", {})
    for name, value in variables.items():
        if problem := _problem(name, value):
            raise file.error("variables", name, problem)
    variables |= {f"kv-{owner}": color for owner, color in blocks.items()}
    return Theme(name=top["name"], dark=top["dark"], ansi=top.get("ansi", False), **colors, variables=variables)


def _palette(file: TomlFile, path: Traversable, table: str, keys: tuple[str, ...]) -> dict[str, str]:
    colors = file.table(table, dict.fromkeys(keys, str))
    for key in keys:
        if key not in colors:
            raise ConfigError(f"{path}: key '{table}.{key}': missing, expected a colour such as \"#73b8c9\"")
        if not _is_color(colors[key]):
            raise file.error(table, key, f'expected a colour such as "#73b8c9", got "{colors[key]}"')
    return colors


def _problem(variable: str, value: str) -> str:
    """What is wrong with the value of a variable; empty when it is fine."""
    first = value.split(maxsplit=1)[0] if value.strip() else ""
    if variable.endswith("-style"):
        wrong = [word for word in value.split() if word not in VALID_STYLE_FLAGS]
        return f'expected words such as "bold" or "none", got "{value}"' if wrong or not first else ""
    if first.startswith("$") or first == "auto" or _is_color(first):
        return ""
    return f'expected a colour such as "#73b8c9" or "#73b8c9 28%", got "{value}"'


def _is_color(text: str) -> bool:
    try:
        Color.parse(text)
    except ColorParseError:
        return False
    return True

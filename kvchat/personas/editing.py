"""Changing the user's personas. Their files stay the user's: comments, order and everything unchanged survive."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from tomlkit.items import Item

from kvchat import paths
from kvchat.files import replace_file
from kvchat.personas import Persona, Personas, load_persona, shipped_personas
from kvchat.toml_file import ConfigError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def persona_file(name: str) -> Path:
    """Where the user's persona of this name is stored, if there is one."""
    return paths.config_dir() / "personas" / f"{name}.toml"


def name_for(title: str, taken: Collection[str]) -> str:
    """A free name for a persona of this title."""
    stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48] or "persona"
    numbered = (f"{stem}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (stem, *numbered) if name not in taken)


def save_persona(persona: Persona) -> Persona:
    """Store a persona in the user's folder and return it as it is read from there. Raises ConfigError; a file that
    could not be used before is not touched."""
    if not _NAME.fullmatch(persona.name):
        raise ConfigError(f"the name '{persona.name}' must be made of small letters, digits, - and _")
    file = persona_file(persona.name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            before = load_persona(file)
            document = tomlkit.parse(file.read_text("utf-8-sig"))
        else:
            before, document = Persona(name=persona.name, system_prompt=""), tomlkit.document()
        _change(document, _values(before), _values(persona))
        replace_file(file, tomlkit.dumps(document))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from error
    return load_persona(file)


def delete_persona(name: str) -> None:
    """Delete the user's persona; a shipped one of the same name shows again. Raises ConfigError."""
    file = persona_file(name)
    try:
        file.unlink()
    except FileNotFoundError:
        raise ConfigError(f"'{name}' comes with kvchat and cannot be deleted") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be deleted: {error.strerror}") from error


def with_persona(personas: Personas, persona: Persona) -> Personas:
    """The personas with one of them added or changed."""
    others = [each for each in personas.all if each.name != persona.name]
    return msgspec.structs.replace(personas, all=tuple(sorted([*others, persona], key=lambda each: each.name)))


def without_persona(personas: Personas, name: str) -> Personas:
    """The personas after the user's one of this name was deleted: the shipped one of that name, if there is one, shows
    again."""
    for shipped in shipped_personas():
        if shipped.name == name:
            return with_persona(personas, shipped)
    return msgspec.structs.replace(personas, all=tuple(each for each in personas.all if each.name != name))


def _values(persona: Persona) -> dict[str, Any]:
    """What a file says of a persona: what has its default is left out."""
    return {
        "title": "" if persona.title == persona.name else persona.title,
        "description": persona.description,
        "greeting": persona.greeting,
        "pin": persona.pin,
        "system_prompt": persona.system_prompt.strip(),
        "sampling": msgspec.to_builtins(persona.sampling),
    }


def _change(document: MutableMapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Write what differs, so that the rest stays as it was written."""
    for key, value in after.items():
        if key == "system_prompt":
            if value != before[key] or key not in document:
                document[key] = _paragraphs(value)
        elif key == "sampling":
            table = document.setdefault(key, tomlkit.table()) if value else document.get(key, {})
            for name in [name for name in table if name not in value]:
                del table[name]
            for name, parameter in value.items():
                if parameter != before[key].get(name):
                    table[name] = parameter
        elif value == before.get(key):
            continue
        elif value:
            document[key] = value
        else:
            document.pop(key, None)


def _paragraphs(text: str) -> Item:
    """A string over several lines, whose first one is below the quotes."""
    lines = "\n".join(text.splitlines())
    return tomlkit.value('"""\n' + tomlkit.string(f"{lines}\n", multiline=True).as_string().removeprefix('"""'))

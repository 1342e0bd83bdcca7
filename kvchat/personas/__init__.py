"""Personas: a system prompt under a name, with the sampling that suits it.

Each is a TOML file named after it: shipped ones lie in `shipped/`, the user's own in `personas/` beside the settings.
"""

from __future__ import annotations

import difflib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from engine.api import SamplingParams
from kvchat import paths
from kvchat.config import SAMPLING_KEYS
from kvchat.toml_file import ConfigError, TomlFile


class Persona(msgspec.Struct, frozen=True, kw_only=True):
    """A preset for a new conversation."""

    name: str
    """The name of its file without .toml."""
    title: str = ""
    description: str = ""
    """One line for a list."""
    system_prompt: str
    sampling: dict[str, Any] = {}
    """Sampling parameters that differ from the user's defaults."""
    greeting: str = ""
    """What a new tab shows before the first message; the model does not see it."""
    pin: bool = False
    """Keep the KV of the system prompt cached, see GenerationRequest.pin_system."""

    def sampling_params(self, defaults: SamplingParams) -> SamplingParams:
        return msgspec.structs.replace(defaults, **self.sampling)


class PersonaWarning(msgspec.Struct, frozen=True):
    """A file that could not be used."""

    path: str
    problem: str
    """One line that names the file."""


class Personas(msgspec.Struct, frozen=True):
    """What there is to choose from, and what could not be read."""

    all: tuple[Persona, ...]
    """Sorted by name."""
    warnings: tuple[PersonaWarning, ...]

    def named(self, name: str) -> Persona:
        """Raises ConfigError when there is none of this name."""
        for persona in self.all:
            if persona.name == name:
                return persona
        names = [persona.name for persona in self.all]
        alike = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{alike[0]}'?" if alike else f"there are {', '.join(names)}"
        raise ConfigError(f"unknown persona '{name}': {hint}")


def load_personas(user_dir: Path | None = None) -> Personas:
    """The shipped personas and those of `user_dir` (default: the user's), which win over shipped ones of the same name.

    A file that cannot be used becomes a warning and hides nothing.
    """
    user_dir = user_dir or paths.config_dir() / "personas"
    found = {persona.name: persona for persona in shipped_personas()}
    warnings = []
    try:
        user_files = _toml_files(user_dir) if user_dir.exists() else []
    except OSError as error:
        user_files = []
        warnings.append(PersonaWarning(str(user_dir), f"{user_dir}: cannot be read: {error.strerror}"))
    for file in user_files:
        try:
            persona = load_persona(file)
        except ConfigError as error:
            warnings.append(PersonaWarning(str(file), str(error)))
        else:
            found[persona.name] = persona
    return Personas(tuple(found[name] for name in sorted(found)), tuple(warnings))


def shipped_personas() -> list[Persona]:
    """Those that come with kvchat, as they come."""
    return [load_persona(file) for file in _toml_files(files(__name__) / "shipped")]


def load_persona(path: Traversable) -> Persona:
    """Read one persona file. Raises ConfigError."""
    file = TomlFile(path)
    values = file.table("", _KEYS)
    if "system_prompt" not in values:
        raise ConfigError(f"{path}: key 'system_prompt': missing")
    values["sampling"] = file.table("sampling", SAMPLING_KEYS)
    file.build(SamplingParams, "sampling", values["sampling"])
    name = path.name.removesuffix(".toml")
    return Persona(name=name, **{"title": name, **values, "system_prompt": values["system_prompt"].strip()})


_KEYS = {"title": str, "description": str, "system_prompt": str, "greeting": str, "pin": bool, "sampling": dict}


def _toml_files(folder: Traversable) -> list[Traversable]:
    return sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)

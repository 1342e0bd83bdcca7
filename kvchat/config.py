"""The user's settings. Every one of them, with its default, is in config.example.toml."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any, Literal

import msgspec

from engine.api import SamplingParams
from engine.config import EngineConfig
from kvchat import paths
from kvchat.catalogue.names import DEFAULT_MODEL
from kvchat.profiles import DEFAULT_PROFILE, PROFILES, ProfileName
from kvchat.toml_file import ConfigError, Size, TomlFile

__all__ = ["Config", "ConfigError", "SAMPLING_KEYS", "UiConfig", "load_config"]

_PER_REQUEST = {"seed", "logit_bias", "ignore_eos"}
"""Sampling parameters that make no sense as a standing preference."""


class UiConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the chat looks."""

    theme: str = "harbor"
    panel: Literal["full", "compact", "off"] = "full"
    """The live panel at the start: everything, two lines, or nothing. F3 changes it."""
    notify: Literal["toast", "bell", "desktop"] = "toast"
    """How a reply is announced that ends unseen, see kvchat.tui.attention."""
    auto_titles: bool = True
    """Whether the loaded model titles conversations while nothing else runs."""
    sidebar: bool = False
    """Whether all conversations are listed at the left."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings; what the file does not set has its default."""

    persona: str = "assistant"
    profile: ProfileName = DEFAULT_PROFILE
    """What `engine` takes its defaults from, see kvchat.profiles."""
    engine: EngineConfig = EngineConfig(DEFAULT_MODEL, **PROFILES[DEFAULT_PROFILE].settings)
    """Its `model` is the file's top-level `model`: a name or a path."""
    sampling: SamplingParams = SamplingParams()
    ui: UiConfig = UiConfig()
    keys: dict[str, str] = {}
    """Other keys than the usual ones, by the id of their binding, see kvchat.tui.keymap."""

    @property
    def model(self) -> str:
        return str(self.engine.model)


def _keys(kind: type[msgspec.Struct], without: Set[str] = frozenset()) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind) if field.name not in without}


SAMPLING_KEYS = _keys(SamplingParams, without=_PER_REQUEST)
"""The sampling parameters that settings and personas may set, and their types."""
_ENGINE_KEYS = _keys(EngineConfig, without={"model"}) | {"kv_memory": Size}
_TOP_KEYS = {
    "model": str,
    "persona": str,
    "profile": ProfileName,
    "engine": dict,
    "sampling": dict,
    "ui": dict,
    "keys": dict,
}


def load_config(path: Path | None = None, profile: ProfileName | None = None) -> Config:
    """Read the settings from `path`, or from the user's config.toml, which may be absent. `profile` goes before the
    file's. Raises ConfigError."""
    if path is None:
        path = paths.config_file()
        if not path.exists():
            profile = profile or DEFAULT_PROFILE
            return Config(profile=profile, engine=EngineConfig(DEFAULT_MODEL, **PROFILES[profile].settings))
    file = TomlFile(path)
    top = file.table("", _TOP_KEYS)
    profile = profile or top.get("profile", DEFAULT_PROFILE)
    own = file.table("engine", _ENGINE_KEYS)
    engine = PROFILES[profile].settings | own
    batch, sequences = engine["max_batch_tokens"], engine["max_sequences"]
    if "max_batch_tokens" not in own and batch <= sequences:
        problem = f"max_batch_tokens of the profile {profile} ({batch}) must be above max_sequences ({sequences})"
        raise file.error("engine", "max_sequences", f"{problem}: set engine.max_batch_tokens")
    return Config(
        persona=top.get("persona", Config().persona),
        profile=profile,
        engine=file.build(EngineConfig, "engine", {"model": top.get("model", DEFAULT_MODEL), **engine}),
        sampling=file.build(SamplingParams, "sampling", file.table("sampling", SAMPLING_KEYS)),
        ui=file.build(UiConfig, "ui", file.table("ui", _keys(UiConfig))),
        keys=_keymap(file) if top.get("keys") else {},
    )


def _keymap(file: TomlFile) -> dict[str, str]:
    from kvchat.tui.keymap import keymap_of  # brings in textual, which few commands need

    return keymap_of(file)

"""`kvchat config`: where the settings are, and whether they are right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvchat.cli.options import Options, pass_options

if TYPE_CHECKING:
    from kvchat.config import Config
    from kvchat.toml_file import ConfigError, TomlFile

KV_ITEM_BYTES = {"float32": 4, "int8": 1, "int4": 0.5}
"""Bytes of one value of the KV cache, scales not counted; 2 for the other dtypes, and auto needs no less."""


@click.group("config")
def command() -> None:
    """Find or check the settings."""


@command.command("path")
@pass_options
def path(options: Options) -> None:
    """Print the path of the configuration file."""
    from kvchat import paths

    print(options.config or paths.config_file())


@command.command("check")
@pass_options
def check(options: Options) -> None:
    """Read the configuration file and say what is wrong with it.

    What it names must be there, too: the theme, the persona, the model.
    """
    from kvchat import paths
    from kvchat.config import load_config

    config = load_config(options.config)
    file = options.config or paths.config_file()
    if not file.exists():
        print(f"{file}: not there, every setting has its default")
        return
    problems = list(_problems(config, file))
    for problem in problems:
        print(f"kvchat: {problem}", file=sys.stderr)
    if problems:
        raise click.exceptions.Exit(1)
    print(f"{file}: fine")


def _problems(config: Config, path: Path) -> Iterator[ConfigError]:
    """What a well-formed file says that cannot be had."""
    from textual.theme import BUILTIN_THEMES

    from kvchat.personas import load_personas
    from kvchat.toml_file import ConfigError, TomlFile
    from kvchat.tui.themes import shipped_themes, user_themes

    file = TomlFile(path)
    mine, bad_themes = user_themes()
    yield from bad_themes.values()
    themes = sorted({theme.name for theme in [*shipped_themes(), *mine]})
    if config.ui.theme not in (*themes, *BUILTIN_THEMES):
        problem = f"unknown theme '{config.ui.theme}': kvchat has {', '.join(themes)}"
        yield file.error("ui", "theme", problem)
    try:
        load_personas().named(config.persona)
    except ConfigError as error:
        yield file.error("", "persona", str(error))
    if config.engine.device != "auto":
        yield from _device_problems(config.engine.device, file)
    yield from _model_problems(config, file)


def _device_problems(device: str, file: TomlFile) -> Iterator[ConfigError]:
    from engine.device import find_device
    from engine.errors import EngineError

    try:
        find_device(device)
    except EngineError as error:
        yield file.error("engine", "device", str(error).removeprefix("device "))


def _model_problems(config: Config, file: TomlFile) -> Iterator[ConfigError]:
    from engine.errors import ModelError
    from engine.locate import model_folder
    from engine.model.config import ModelConfig
    from kvchat.catalogue.names import DEFAULT_MODEL
    from kvchat.cli.settings import installed_name

    try:
        model = ModelConfig.read(model_folder(installed_name(config.model)))
    except ModelError as error:
        if config.model != DEFAULT_MODEL:  # nothing is wrong with a file that leaves the model to kvchat
            yield file.error("", "model", str(error))
        return
    engine = config.engine
    if engine.context_length and engine.context_length > model.context_length and model.rope.kind != "dynamic":
        problem = f"{engine.context_length:,} tokens are more than the {model.context_length:,} of the model"
        yield file.error("engine", "context_length", problem)
    values = 2 * model.n_layer * model.n_kv_head * model.head_dim * engine.block_size
    block_bytes = int(values * KV_ITEM_BYTES.get(engine.kv_dtype, 2))
    if engine.kv_memory and engine.kv_memory < block_bytes:
        problem = f"{engine.kv_memory:,} bytes hold no block of {engine.block_size} tokens: it takes {block_bytes:,}"
        yield file.error("engine", "kv_memory", problem)

"""`kvchat config`: where the settings are, and whether they are right."""

from __future__ import annotations

import click

from kvchat.cli.options import Options, pass_options


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
    """Read the configuration file and say what is wrong with it."""
    from kvchat import paths
    from kvchat.config import load_config

    load_config(options.config)
    file = options.config or paths.config_file()
    print(f"{file}: fine" if file.exists() else f"{file}: not there, every setting has its default")

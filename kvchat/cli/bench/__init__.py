"""`kvchat bench`: measurements, each a command of its own."""

from __future__ import annotations

import click

from kvchat.cli.bench import interface, kv_dtype, peers


@click.group("bench")
def command() -> None:
    """Measure this machine. Nothing else should run meanwhile."""


for measurement in (interface.command, kv_dtype.command, peers.command):
    command.add_command(measurement)

"""`kvchat bench`: measurements, each a command of its own."""

from __future__ import annotations

import click

from kvchat.bench.experiments import EXPERIMENTS
from kvchat.cli.bench import kv_dtype, peers
from kvchat.cli.bench.experiment import command_for


@click.group("bench")
def command() -> None:
    """Measure this machine. Nothing else should run meanwhile."""


for measurement in (*map(command_for, EXPERIMENTS), kv_dtype.command, peers.command):
    command.add_command(measurement)

"""`kvchat bench`: measurements, each a command of its own."""

from __future__ import annotations

import click

from kvchat.bench.experiments import EXPERIMENTS
from kvchat.cli.bench import kv_dtype, loads, peers
from kvchat.cli.bench.experiment import command_for


@click.group("bench")
def command() -> None:
    """Measure this machine. Nothing else should run meanwhile."""


# The later ones have options of their own, and take the place of what they are called like.
for measurement in (*map(command_for, EXPERIMENTS), loads.mixed, loads.doctor, kv_dtype.command, peers.command):
    command.add_command(measurement)

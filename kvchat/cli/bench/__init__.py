"""`kvchat bench`: measurements, each a command of its own."""

from __future__ import annotations

import click

from kvchat.bench.experiments import EXPERIMENTS, PEERS
from kvchat.cli.bench import everything, peers
from kvchat.cli.bench.experiment import command_for


@click.group("bench")
def command() -> None:
    """Measure this machine. Nothing else should run meanwhile."""


for experiment in EXPERIMENTS:
    command.add_command(peers.command if experiment is PEERS else command_for(experiment))
command.add_command(everything.command)

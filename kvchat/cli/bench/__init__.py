"""`kvchat bench`: measurements, each a command of its own."""

from __future__ import annotations

import click

from kvchat.bench.experiments import EXPERIMENTS
from kvchat.cli.bench import everything, interface, loads, peers
from kvchat.cli.bench.experiment import command_for


@click.group("bench")
def command() -> None:
    """Measure this machine. Nothing else should run meanwhile."""


_WITH_OPTIONS = {each.name: each for each in (loads.mixed, loads.doctor, peers.command)}
"""Those that take more than every experiment does."""

for experiment in EXPERIMENTS:
    command.add_command(_WITH_OPTIONS.get(experiment.name) or command_for(experiment))
command.add_command(everything.command)
command.add_command(interface.command)

"""`kvchat personas`: what there is to choose from."""

from __future__ import annotations

import sys

import click


@click.command("personas")
def command() -> None:
    """List the personas.

    Your own are the TOML files in the folder personas beside the configuration file.
    """
    from kvchat.cli.table import table
    from kvchat.personas import load_personas
    from kvchat.tui.format import printable

    personas = load_personas()
    rows = [("NAME", "TITLE", "DESCRIPTION"), *((p.name, p.title, p.description) for p in personas.all)]
    print(table([tuple(map(printable, row)) for row in rows]))
    for warning in personas.warnings:
        print(f"kvchat: {printable(warning.problem)}", file=sys.stderr)

"""`kvchat models`: what is installed and what `pull` knows by name."""

from __future__ import annotations

import click


@click.command("models")
def command() -> None:
    """List the models, installed or known by name."""
    from engine.locate import installed_names, models_dir
    from kvchat.catalogue.folder import InstalledModel, survey
    from kvchat.catalogue.names import KNOWN_MODELS
    from kvchat.cli.table import table

    found = survey()
    rows = [("NAME", "PARAMETERS", "CONTEXT", "KV/TOKEN", "DISK", "ARCHITECTURE")]
    for model in found:
        if isinstance(model, InstalledModel):
            rows.append(
                (
                    model.name,
                    f"{model.parameters / 1e6:,.0f}M",
                    str(model.context_length),
                    f"{model.kv_token_bytes / 1024:.1f} KiB",
                    f"{model.disk_bytes / 1e6:,.0f} MB",
                    model.architecture,
                )
            )
    if len(rows) > 1:
        print(table(rows))
    elif not found:
        print(f"No model is installed in {models_dir()}.")
    for problem in found:
        if not isinstance(problem, InstalledModel):
            print(f"damaged: {problem}")
    names = installed_names()
    for known in KNOWN_MODELS:
        if known.name not in names:
            print(f"not installed: {known.name} ({known.description}); kvchat pull {known.name}")

"""The flags that the chat, the one-shot and the commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for on the command line; None is not asked."""

    model: str | None = None
    persona: str | None = None
    system: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    device: str | None = None
    kv_dtype: str | None = None
    config: Path | None = None


pass_options = click.make_pass_decorator(Options)

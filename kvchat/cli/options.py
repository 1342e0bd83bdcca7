"""The flags that the chat, the one-shot and the commands share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kvchat.profiles import PROFILE_NAMES, ProfileName


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for on the command line; None is not asked."""

    model: str | None = None
    profile: ProfileName | None = None
    persona: str | None = None
    system: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    device: str | None = None
    kv_dtype: str | None = None
    config: Path | None = None


class _Text(click.types.StringParamType):
    """What is stored, sent to the engine or compared; paths are of any bytes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("it is not valid UTF-8", param, ctx)
        return text


TEXT = _Text()


def not_empty(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A callback for a flag or an argument."""
    if value is not None and not value.strip():
        raise click.BadParameter("it must not be empty")
    return value


def finite(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """A callback for a flag: click takes inf and nan for numbers of any range."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number")
    return value


model_option = click.option(
    "--model",
    metavar="NAME",
    type=TEXT,
    callback=not_empty,
    help="An installed model, or the path of a model folder.",
)
kv_dtype_option = click.option(
    "--kv-dtype",
    metavar="DTYPE",
    type=click.Choice(["auto", "float32", "bfloat16", "float16", "int8", "int4"]),
    help="What keys and values are stored in: auto, float32, bfloat16, float16, int8 or int4.",
)
profile_option = click.option(
    "--profile",
    metavar="NAME",
    type=click.Choice(PROFILE_NAMES),
    help="What the engine is set up for: chat, documents or writer.",
)
pass_options = click.make_pass_decorator(Options)

"""`kvchat` itself: the chat, or with -p a single question; and the commands under it.

Commands are imported when they are asked for, and import what they need when they run: the chat opens at once, and so
does `kvchat --help`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import kvchat
from kvchat.cli.options import TEXT, Options, finite, kv_dtype_option, model_option, not_empty, profile_option

PLACES = {
    **{name: f"{name}:command" for name in ("bench", "calibrate", "config", "doctor")},
    "export": "exchange:export_command",
    "import": "exchange:import_command",
    **{name: f"{name}:command" for name in ("models", "personas", "plan", "pull")},
    "search": "exchange:search_command",
}
"""Where each command is: a module of kvchat.cli, and its name there."""


class Commands(Mapping[str, click.Command]):
    """Imports a command when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        module, _, command = PLACES[name].partition(":")
        found: click.Command = getattr(import_module(f"kvchat.cli.{module}"), command)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


@click.group(
    commands=Commands(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "-p", "--prompt", metavar="TEXT", type=TEXT, help="Answer one question on stdout; piped stdin is appended to it."
)
@click.option("--json", "as_json", is_flag=True, help="With -p: print one JSON object, not the text.")
@click.option("-c", "--continue", "continue_last", is_flag=True, help="Go on with the last conversation; with -p too.")
@model_option
@click.option(
    "--persona", metavar="NAME", type=TEXT, callback=not_empty, help="The persona of the reply, or of new tabs."
)
@click.option("--system", metavar="TEXT", type=TEXT, help="The system prompt, in place of the persona's.")
@click.option(
    "--temperature",
    metavar="T",
    type=click.FloatRange(min=0),
    callback=finite,
    help="Randomness of replies; 0 is greedy.",
)
@click.option("--max-tokens", metavar="N", type=click.IntRange(min=1), help="The longest reply, in tokens.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="The same seed gives the same reply.")
@click.option("--device", metavar="DEVICE", type=TEXT, help="Where the model runs: auto, cpu, cuda or cuda:N.")
@kv_dtype_option
@profile_option
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The settings to go by, in place of the usual file.",
)
@click.option("--debug", is_flag=True, help="On an error, show the whole traceback.")
@click.version_option(kvchat.__version__, message="%(prog)s %(version)s")
@click.pass_context
def root(
    context: click.Context, prompt: str | None, as_json: bool, continue_last: bool, debug: bool, **options: Any
) -> None:
    """Chat in the terminal with a language model that runs on this machine.

    Without a command it opens the chat, with the tabs of the last time. Flags go before a command.
    """
    context.obj = Options(**options)
    if context.invoked_subcommand is not None:
        if prompt is not None or as_json or continue_last:
            raise click.UsageError(f"-p, -c and --json do not go with the command {context.invoked_subcommand!r}")
    elif continue_last and (options["persona"] or options["system"] is not None):
        raise click.UsageError("a conversation keeps its persona and its system prompt: no --persona, --system with -c")
    elif prompt is not None:
        from kvchat.cli.oneshot import answer

        answer(prompt, context.obj, as_json, continue_last)
    elif as_json:
        raise click.UsageError("--json needs a question: kvchat -p TEXT --json")
    else:
        from kvchat.cli.chat import chat

        chat(context.obj, continue_last)

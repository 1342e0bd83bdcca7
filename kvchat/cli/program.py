"""The program from the shell's side: one line per error on stderr, and an exit code.

0 fine, 1 failed, 2 used wrongly, 141 as the shell counts a reader that went away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from kvchat.cli.explain import explain
from kvchat.cli.root import root

FAILED, USAGE, BROKEN_PIPE = 1, 2, 141


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. With --debug, an error is raised instead of explained."""
    try:
        code = _invoke(arguments)
        print(end="", flush=True)
    except OSError as error:
        if error.filename is not None:
            raise
        # Python flushes stdout once more at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        return _complain(f"cannot write the output: {error.strerror}", FAILED)
    return code


def _invoke(arguments: Sequence[str]) -> int:
    """Raises OSError without a file name when stdout takes no more."""
    debug = False
    try:
        with root.make_context("kvchat", list(arguments)) as context:
            debug = context.params["debug"]
            root.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.UsageError as error:
        return _complain(_misuse(error), USAGE)
    except Exception as error:
        if debug or (isinstance(error, OSError) and error.filename is None):
            raise
        return _complain(explain(error), FAILED)
    return 0


def _complain(message: str, code: int) -> int:
    from kvchat.tui.format import printable

    print(f"kvchat: {printable(message)}", file=sys.stderr)
    return code


def _misuse(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption) and any(error.option_name in option.opts for option in root.params):
        return f"{message} here: it goes before the command, kvchat {error.option_name} ... COMMAND"
    if type(error) is click.UsageError or error.ctx is None:
        return message
    return f"{message} (see {error.ctx.command_path} --help)"

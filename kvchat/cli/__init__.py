"""The command line: `main` is the program, every command has a module of its own."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The shell's exit code for a program that Ctrl-C ended."""


def main() -> None:
    try:
        from kvchat.cli.program import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)

"""The command line: `main` is the program, every command has a module of its own."""

from __future__ import annotations

from kvchat.cli.program import main

__all__ = ["main"]

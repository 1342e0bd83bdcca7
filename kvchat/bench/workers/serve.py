"""The process around one engine: loads it, then answers one request after the other until stdin ends.

A request is a line of JSON, [operation, arguments]; an operation is a method of the module's `Worker`. The answer is a
line with one of `value`, `error` (a text), or `missing` (the name of a Python module) when the engine is not installed.
The first answer comes unasked, when the engine is loaded, with what it says about itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TextIO

from .memory import peak_bytes


def main(module: str, settings: str) -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    try:
        factory = import_module(f".{module}", __package__).Worker
    except ModuleNotFoundError as error:
        _say(replies, {"missing": error.name})
        return
    loaded: list[Any] = []

    def load() -> Any:
        loaded.append(factory(**json.loads(settings)))
        return loaded[0].about()

    if not _answer(replies, load):
        return
    for line in sys.stdin:
        operation, arguments = json.loads(line)
        if operation == "peak_bytes":
            _answer(replies, peak_bytes)
        else:
            _answer(replies, lambda: getattr(loaded[0], operation)(**arguments))  # noqa: B023


def _answer(replies: TextIO, call: Callable[[], Any]) -> bool:
    """Whether the call succeeded. Any error is the caller's to judge: it goes there, and the process lives on."""
    try:
        value = call()
    except Exception as error:
        _say(replies, {"error": f"{type(error).__name__}: {error}"})
        return False
    _say(replies, {"value": value})
    return True


def _say(replies: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=replies, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

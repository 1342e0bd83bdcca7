"""The process around one engine: loads it, then answers one request after the other until stdin ends.

A request is a line of JSON, [operation, arguments]; an operation is a method of the module's `Worker`. The answer is a
line with either `value` or `error`, a text. The first one comes unasked: what the loaded engine says about itself.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

from .memory import peak_bytes


def main(module: str, settings: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not get between the answers

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        worker = import_module(f".{module}", __package__).Worker(**json.loads(settings))
    except Exception as error:
        say(error=_line(error))
        return
    say(value=worker.about())
    for line in sys.stdin:
        operation, arguments = json.loads(line)
        try:
            say(value=peak_bytes() if operation == "peak_bytes" else getattr(worker, operation)(**arguments))
        except Exception as error:
            say(error=_line(error))


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


if __name__ == "__main__":
    main(*sys.argv[1:])

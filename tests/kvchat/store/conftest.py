from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kvchat
from kvchat.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as store:
        yield store


@pytest.fixture
def run_beside(path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start another real process on the same history; its code finds `store` open and `say` to print a line."""
    running: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        prelude = (
            "import sys; from functools import partial; from pathlib import Path\n"
            "from kvchat.store import Store, Tab\n"
            "say = partial(print, flush=True)\n"
            "path = Path(sys.argv[1])\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", prelude + code, str(path)],
            cwd=Path(kvchat.__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()

"""The program as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.locate import models_dir
from kvchat.catalogue.names import DEFAULT_MODEL

KVCHAT = (sys.executable, "-m", "kvchat")
RunKvchat = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def run_kvchat(home: Path) -> RunKvchat:
    """Runs `kvchat ARGUMENTS` to its end, with a home of its own."""

    def run(*arguments: str, stdin: bytes = b"", timeout: float = 120) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*KVCHAT, *arguments], input=stdin, capture_output=True, timeout=timeout)

    return run


@pytest.fixture
def start_kvchat(home: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts `kvchat ARGUMENTS` with pipes to both outputs."""

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*KVCHAT, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    return start


@pytest.fixture
def installed_model(home: Path, model_folder: Path) -> str:
    """The default model, installed in the home of this test; its name."""
    models_dir().mkdir(parents=True)
    (models_dir() / DEFAULT_MODEL).symlink_to(model_folder)
    return DEFAULT_MODEL

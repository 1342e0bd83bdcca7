"""What the installed packages promise to each other and to other libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest

import engine


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_transformers_does_not_take_our_kernels_for_another_library() -> None:
    code = "import kernels; from transformers.utils import is_kernels_available; print(is_kernels_available())"
    assert run_python(code) == "False"


def test_the_plain_data_and_the_process_client_come_without_torch() -> None:
    code = "import sys, engine; engine.SamplingParams; engine.EngineConfig; engine.ProcessClient; print(*sys.modules)"
    assert "torch" not in run_python(code).split()


def test_the_user_interface_comes_without_torch() -> None:
    loaded = run_python("import sys, kvchat.cli.chat, kvchat.tui.app; print(*sys.modules)").split()
    assert "kvchat.tui.app" in loaded
    assert not {"torch", "transformers", "numba"} & set(loaded)


def test_the_command_line_starts_without_anything_heavy() -> None:
    loaded = run_python("import sys, kvchat.cli; print(*sys.modules)").split()
    assert not {"torch", "textual", "rich", "transformers", "huggingface_hub", "sqlite3"} & set(loaded)


def test_every_public_name_of_the_engine_resolves() -> None:
    for name in engine.__all__:
        assert getattr(engine, name) is not None
    assert dir(engine) == sorted(engine.__all__)


def test_an_unknown_name_of_the_engine_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Enigne"):
        _ = engine.Enigne

"""What the installed packages promise to each other and to other libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import engine
import kernels
from kvchat import __version__


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_transformers_does_not_take_our_kernels_for_another_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As pip installs it: the metadata say that the importable `kernels` belongs to kvchat, in this version.
    metadata = tmp_path / f"kvchat-{__version__}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kvchat\nVersion: {__version__}\n")
    (metadata / "RECORD").write_text("kernels/__init__.py,,\n")
    (tmp_path / "kernels").symlink_to(Path(kernels.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = """
from importlib.metadata import packages_distributions
from transformers.utils import is_kernels_available
print(*packages_distributions()["kernels"], is_kernels_available())
"""
    assert run_python(code) == "kvchat False"


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
    assert not {"plotext", "matplotlib", "numpy", "psutil"} & set(loaded)


def test_every_public_name_of_the_engine_resolves() -> None:
    for name in engine.__all__:
        assert getattr(engine, name) is not None
    assert dir(engine) == sorted(engine.__all__)


def test_an_unknown_name_of_the_engine_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Enigne"):
        _ = engine.Enigne

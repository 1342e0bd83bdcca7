"""A model from the Hub, against a stand-in for its HTTP interface on loopback.

Each pull runs in a process of its own, because huggingface_hub reads its environment when it is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from gguf_maker import TinyGGUF
from safetensors.numpy import load, save

from engine.locate import installed_names, model_folder, models_dir
from kvchat.catalogue.folder import validate
from kvchat.catalogue.pull import pull

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = "model.safetensors"

PULL = """
import json, sys
from engine.errors import ModelError
from kvchat.catalogue.pull import pull

def show(progress):
    print(json.dumps([progress.stage, progress.done_bytes, progress.total_bytes]))

try:
    pull(sys.argv[1], show)
except ModelError as error:
    sys.exit(str(error))
"""


class Hub:
    """One repository, owner/tiny. What was asked for is in `requests`: (method, path, Range header)."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.requests: list[tuple[str, str, str | None]] = []
        self.tokens: dict[str, str | None] = {}
        self.cuts = 0
        """How many more times the connection breaks halfway through what is left of the weights."""
        self.failing: str | None = None
        """A file whose download ends in a server error."""
        self.gated = False
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, with_body: bool) -> None:
                asked = self.headers.get("Range")
                hub.requests.append((self.command, self.path, asked))
                path = self.path.partition("?")[0]
                hub.tokens[f"{self.command} {path}"] = self.headers.get("Authorization")
                if hub.gated:
                    self.reply(403, b"{}", {"X-Error-Code": "GatedRepo"})
                elif path.startswith("/api/models/owner/tiny/tree/"):
                    self.reply_json([{"type": "file", **entry} for entry in hub.entries("path")])
                elif path.startswith("/api/models/owner/tiny"):
                    siblings = hub.entries("rfilename")
                    self.reply_json({"id": "owner/tiny", "sha": COMMIT, "siblings": siblings})
                elif with_body and path.endswith(f"/{hub.failing}"):
                    self.reply(500, b"{}", {})
                elif (name := path.removeprefix(f"/owner/tiny/resolve/{COMMIT}/")) in hub.files:
                    self.reply_file(hub.files[name], asked, with_body, cut=name == WEIGHTS)
                else:
                    self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})

            def reply_file(self, content: bytes, asked: str | None, with_body: bool, cut: bool) -> None:
                headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
                part = content
                if asked and (match := re.fullmatch(r"bytes=(\d+)-", asked)):
                    part = content[int(match[1]) :]
                    headers["Content-Range"] = f"bytes {match[1]}-{len(content) - 1}/{len(content)}"
                breaks = with_body and cut and hub.cuts > 0
                hub.cuts -= breaks
                sent = part[: len(part) // 2] if breaks else part if with_body else b""
                self.reply(206 if part is not content else 200, sent, headers | {"Content-Length": str(len(part))})
                self.close_connection = breaks

            def reply_json(self, content: object) -> None:
                self.reply(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

            def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def entries(self, key: str) -> list[dict[str, object]]:
        return [
            {key: name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in self.files.items()
        ]

    def downloads(self) -> list[tuple[str, str | None]]:
        """Files asked for, with the Range asked of them."""
        return [
            (path.rsplit("/", 1)[1], asked)
            for method, path, asked in self.requests
            if method == "GET" and "/resolve/" in path
        ]

    def pull(self, name: str = "owner/tiny", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PULL, name],
            env=os.environ | {"HF_ENDPOINT": self.endpoint, "NO_PROXY": "127.0.0.1"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    TinyGGUF().write(tmp_path / "tiny.gguf")
    model = pull(tmp_path / "tiny.gguf", into=tmp_path / "models")
    hub = Hub({file.name: file.read_bytes() for file in model.iterdir()})
    thread = threading.Thread(target=hub.server.serve_forever)
    thread.start()
    yield hub
    hub.server.shutdown()
    thread.join()
    hub.server.server_close()


def leftovers() -> list[str]:
    return [path.name for path in models_dir().glob(".pulling/*") if path.suffix != ".lock"]


def test_a_repository_installs_under_its_own_name(hub: Hub) -> None:
    pulled = hub.pull()
    assert pulled.stderr == ""
    folder = model_folder("owner/tiny")
    validate(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == hub.files
    reports = [json.loads(line) for line in pulled.stdout.splitlines()]
    assert [stage for stage, *_ in reports[:2]] == ["asking the Hub", "downloading"]
    assert ["downloading", *[sum(map(len, hub.files.values()))] * 2] in reports
    assert leftovers() == []


def test_other_formats_of_the_same_weights_are_not_downloaded(hub: Hub) -> None:
    extra = [
        "pytorch_model.bin",
        "consolidated.safetensors",
        "onnx/model.onnx",
        "original/model.safetensors",
        "README.md",
    ]
    hub.files |= dict.fromkeys(extra, b"x")
    assert hub.pull().stderr == ""
    validate(model_folder("owner/tiny"))
    assert not {name for name, _ in hub.downloads()} & {"pytorch_model.bin", "model.onnx", "README.md"}
    assert [name for name, _ in hub.downloads()].count(WEIGHTS) == 1


def test_a_connection_cut_in_mid_file_is_resumed_where_it_broke(hub: Hub) -> None:
    weights = load(hub.files[WEIGHTS]) | {"padding": np.arange(6_000_000, dtype=np.float32)}
    hub.files[WEIGHTS] = save(weights)  # beyond the 10 MB that huggingface_hub writes at once
    hub.cuts = 1
    assert hub.pull().stderr == ""
    assert (model_folder("owner/tiny") / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    first, second = [asked for name, asked in hub.downloads() if name == WEIGHTS]
    assert first is None
    assert second is not None and int(second.removeprefix("bytes=").removesuffix("-")) >= 10_000_000


def test_after_a_failure_the_next_pull_keeps_the_files_that_arrived(hub: Hub) -> None:
    hub.failing = WEIGHTS
    failed = hub.pull()
    assert re.fullmatch(r"could not download owner/tiny on .*; pull it again to continue\n", failed.stderr)
    assert installed_names() == [] and leftovers() == ["owner--tiny.resumable"]

    hub.failing = None
    hub.requests.clear()
    assert hub.pull().stderr == ""
    validate(model_folder("owner/tiny"))
    assert [name for name, _ in hub.downloads()] == [WEIGHTS]
    assert leftovers() == []


def test_a_hub_that_cannot_be_reached_is_one_line(hub: Hub) -> None:
    failed = hub.pull(HF_ENDPOINT="http://127.0.0.1:1")
    assert re.fullmatch(
        r"could not download owner/tiny on http://127\.0\.0\.1:1 \(.*refused.*\); pull it again to continue\n",
        failed.stderr,
    )
    assert installed_names() == [] and leftovers() == []


def test_offline_mode_is_respected(hub: Hub) -> None:
    failed = hub.pull(HF_HUB_OFFLINE="1")
    assert failed.stderr == f"owner/tiny on {hub.endpoint} was not asked for, because HF_HUB_OFFLINE is set\n"
    assert hub.requests == []


def test_the_token_of_the_user_is_sent(hub: Hub) -> None:
    assert hub.pull(HF_TOKEN="hf_secret").stderr == ""
    assert set(hub.tokens.values()) == {"Bearer hf_secret"}


def test_nothing_is_asked_of_the_hub_but_the_model(hub: Hub) -> None:
    hub.pull()
    assert all(path.startswith(("/api/models/owner/tiny", "/owner/tiny/resolve/")) for _, path, _ in hub.requests)


@pytest.mark.parametrize(
    ("name", "gated", "message"),
    [
        ("owner/other", False, "does not exist or is private (then set HF_TOKEN to your token)"),
        ("owner/tiny", True, "is gated: accept its terms there and set HF_TOKEN to your token"),
    ],
)
def test_a_repository_that_is_not_open_is_one_line(name: str, gated: bool, message: str, hub: Hub) -> None:
    hub.gated = gated
    assert hub.pull(name).stderr == f"{name} on {hub.endpoint} {message}\n"
    assert leftovers() == []


def test_a_repository_without_usable_weights_is_refused_before_anything_is_downloaded(hub: Hub) -> None:
    hub.files["pytorch_model.bin"] = hub.files.pop(WEIGHTS)
    assert "has no config.json with model*.safetensors, so it is not a model to use here" in hub.pull().stderr
    assert hub.downloads() == [] and leftovers() == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (b"{", "owner/tiny/config.json is damaged"),
        (b'{"architectures": ["MambaForCausalLM"]}', "owner/tiny/config.json: architecture 'MambaForCausalLM'"),
    ],
    ids=["damaged", "unsupported"],
)
def test_a_model_that_the_engine_cannot_load_is_refused_before_its_weights_come(
    config: bytes, message: str, hub: Hub
) -> None:
    hub.files["config.json"] = config
    assert hub.pull().stderr.startswith(message)
    assert [name for name, _ in hub.downloads()] == ["config.json"]
    assert installed_names() == [] and leftovers() == []

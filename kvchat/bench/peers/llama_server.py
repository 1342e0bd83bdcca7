"""llama-server, which alone of llama.cpp's programs keeps the cache of one conversation for the next."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from kvchat.bench.peers.peer import PeerError, Prompt

CONTEXT = 4096
REPLY_TOKENS = 8
START_S, POLL_S = 120, 0.05


class LlamaServer:
    """A server on a free port of the loopback interface, with its own choice of slots, while the context lasts.

    Raises PeerError when it does not get ready.
    """

    def __init__(self, program: str, gguf: Path, threads: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [
                *(program, "-m", gguf, "-t", str(threads), "-ngl", "0", "-c", str(CONTEXT)),
                *("--host", "127.0.0.1", "--port", str(self._port)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> LlamaServer:
        try:
            self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def first_token_behind(self, first: Prompt, second: Prompt) -> float:
        """Seconds that it says the prompt of the second conversation took, the first one having had its reply."""
        self._complete(first, REPLY_TOKENS)
        return first_token_seconds(self._complete(second, 1))

    def _complete(self, prompt: Prompt, tokens: int) -> dict[str, Any]:
        body = {
            "prompt": prompt,
            "n_predict": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": True,
        }
        status, text = self._request("POST", "/completion", json.dumps(body))
        if status != 200:
            raise PeerError(f"llama-server answered {status}: {text[:80]!r}")
        return json.loads(text)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _wait(self) -> None:
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                raise PeerError(f"llama-server ended at once (exit {self._process.returncode})")
            try:
                if self._request("GET", "/health")[0] == 200:
                    return
            except ConnectionError:
                pass
            time.sleep(POLL_S)
        raise PeerError(f"llama-server was not ready after {START_S} s")

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def first_token_seconds(completion: dict[str, Any]) -> float:
    """Its own time for the prompt, which ends with the logits of the first token: without the way through HTTP."""
    return completion["timings"]["prompt_ms"] / 1000

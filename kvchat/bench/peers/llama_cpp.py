"""llama.cpp through the programs it comes with, each started for one measurement and asked for its own timings.

llama-bench and llama-batched-bench draw random tokens themselves: of the prompts they are given the lengths.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvchat.bench.peers.derived import derived
from kvchat.bench.peers.llama_server import LlamaServer
from kvchat.bench.peers.peer import ONE_SHOT_TOKENS, QUESTION, Peer, PeerError, Prompt
from kvchat.bench.peers.processes import run

NAME = "llama.cpp"
QUANTIZATIONS = ("Q4_0", "Q8_0")


class Tools:
    """The programs, in one folder or on the PATH."""

    def __init__(self, folder: Path | None) -> None:
        self._path = os.environ.get("PATH", "") if folder is None else str(folder.absolute())

    def here(self, name: str) -> bool:
        return shutil.which(name, path=self._path) is not None

    def __getitem__(self, name: str) -> str:
        """The program's path. Raises PeerError when it is not there."""
        if found := shutil.which(name, path=self._path):
            return found
        raise PeerError(f"{name} was not found in {self._path}")


def find(folder: Path | None, ggufs: Sequence[Path], threads: int) -> list[Peer]:
    """A peer for each GGUF file. Raises PeerError when the programs are not here or do not work."""
    tools = Tools(folder)
    if not tools.here("llama-bench"):
        raise PeerError("not found: any build of it will do; --llama-cpp names the folder that llama-bench is in")
    if not ggufs:
        raise PeerError("it needs a GGUF file of the model: --gguf or --quantize")
    return [LlamaCpp(tools, gguf, threads) for gguf in ggufs]


def quantized(folder: Path | None, source: Path) -> list[Path]:
    """The source quantized to each of QUANTIZATIONS, once. Raises PeerError without llama-quantize."""
    quantize = Tools(folder)["llama-quantize"]

    def file(kind: str) -> Path:
        def make(path: Path) -> None:
            run([quantize, "--allow-requantize", source, path, kind])

        return derived(source, f"{source.stem}-{kind}.gguf", make)

    return [file(kind) for kind in QUANTIZATIONS]


class LlamaCpp:
    """llama.cpp with one GGUF file."""

    def __init__(self, tools: Tools, gguf: Path, threads: int) -> None:
        self._tools, self._gguf, self._threads = tools, gguf, threads
        self._flash: dict[str, str] = {}
        probe = self._bench("auto", "-p", "1", "-n", "0")
        # "llama 256M Q4_0", "qwen2 1B Q4_K - Medium": architecture, size, quantization
        self.name = f"{NAME} {probe['model_type'].split(' ', 2)[-1]}"
        self.version = f"build {probe['build_number']} ({probe['build_commit']}), {gguf.name}"

    def decode(self, prompts: Sequence[Prompt], steps: int) -> float:
        count, context = len(prompts), len(prompts[0])

        def measure(flash: str) -> float:
            if count == 1:
                return self._bench(flash, "-p", "0", "-n", str(steps), "-d", str(context))["avg_ts"]
            return self._batched(flash, count, context, steps)["speed_tg"]

        return self._faster(f"decode {count} x {context}", measure)

    def prefill(self, prompt: Prompt) -> float:
        tokens = str(len(prompt))
        return self._faster(f"prefill {tokens}", lambda flash: self._bench(flash, "-p", tokens, "-n", "0")["avg_ts"])

    def first_token_behind(self, first: Prompt, second: Prompt) -> float:
        with LlamaServer(self._tools["llama-server"], self._gguf, self._threads) as server:
            return server.first_token_behind(first, second)

    def one_shot(self) -> float:
        # llama-completion is the leaner of the two where both are there.
        program = self._tools["llama-completion" if self._tools.here("llama-completion") else "llama-cli"]
        question = ("--single-turn", "-p", QUESTION, "-n", str(ONE_SHOT_TOKENS), "--temp", "0", "--ignore-eos")
        return run([program, *self._common(), *question]).seconds

    def peak_memory(self, prompt: Prompt, steps: int) -> int:
        return run(self._bench_command("on", "-p", "0", "-n", str(steps), "-d", str(len(prompt)))).peak_bytes

    def close(self) -> None:
        """Nothing runs between two measurements."""

    def _faster(self, what: str, measure: Callable[[str], float]) -> float:
        """With flash attention on or off: the faster one of the first time, from then on."""
        if what in self._flash:
            return measure(self._flash[what])
        rates = {flash: measure(flash) for flash in ("on", "off")}
        self._flash[what] = max(rates, key=rates.__getitem__)
        return max(rates.values())

    def _bench(self, flash: str, *arguments: str) -> dict[str, Any]:
        return parse_bench(run(self._bench_command(flash, *arguments)).stdout)

    def _bench_command(self, flash: str, *arguments: str) -> list[str | Path]:
        return [self._tools["llama-bench"], *self._common(), "-fa", flash, "-r", "1", "-o", "json", *arguments]

    def _batched(self, flash: str, sequences: int, context: int, steps: int) -> dict[str, Any]:
        sizes = {"-npl": sequences, "-npp": context, "-ntg": steps, "-c": sequences * (context + steps)}
        flags = [text for flag, value in sizes.items() for text in (flag, str(value))]
        program = self._tools["llama-batched-bench"]
        return parse_batched(run([program, *self._common(), "-fa", flash, "--output-format", "jsonl", *flags]).stdout)

    def _common(self) -> list[str | Path]:
        return ["-m", self._gguf, "-t", str(self._threads), "-ngl", "0"]


def parse_bench(stdout: str) -> dict[str, Any]:
    """The one test that `llama-bench -o json` reports. Raises PeerError when it is anything else."""
    try:
        [test] = json.loads(stdout)
    except ValueError:
        raise PeerError(f"llama-bench printed no result: {stdout.strip()[:80]!r}") from None
    return test


def parse_batched(stdout: str) -> dict[str, Any]:
    """The one result among what `llama-batched-bench --output-format jsonl` prints."""
    for line in stdout.splitlines():
        if line.startswith("{"):
            return json.loads(line)
    raise PeerError(f"llama-batched-bench printed no result: {stdout.strip()[:80]!r}")

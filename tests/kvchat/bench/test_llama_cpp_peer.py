"""llama.cpp's own programs: how they are called, and what is read from what they print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvchat.bench.peers import llama_cpp
from kvchat.bench.peers.llama_cpp import LlamaCpp, Tools, parse_batched, parse_bench
from kvchat.bench.peers.llama_server import first_token_seconds
from kvchat.bench.peers.peer import PeerError


def program(folder: Path, name: str, script: str) -> None:
    """A stand-in for one of llama.cpp's programs, which also notes how it was called."""
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/calls"\n{script}\n')
    path.chmod(0o755)


def calls(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "calls").read_text().splitlines()]


@pytest.fixture
def tools(tmp_path: Path, recorded: Path) -> Path:
    """A folder of stand-ins that print what the real ones printed; with flash attention off they are faster."""
    faster = 'case "$*" in *\'-fa off\'*) sed \'s/5.168909/7.5/; s/1.105206/3.25/\' "$OUT" ;; *) cat "$OUT" ;; esac'
    program(tmp_path, "llama-bench", f'OUT="{recorded}/llama-bench.json"\n{faster}')
    program(tmp_path, "llama-batched-bench", f'OUT="{recorded}/llama-batched-bench.jsonl"\n{faster}')
    return tmp_path


def test_a_result_of_llama_bench_is_read(recorded: Path) -> None:
    test = parse_bench((recorded / "llama-bench.json").read_text())
    assert (test["n_gen"], test["n_depth"], test["n_threads"]) == (4, 64, 2)
    assert test["avg_ts"] == 5.168909


def test_a_result_of_llama_batched_bench_is_read(recorded: Path) -> None:
    result = parse_batched((recorded / "llama-batched-bench.jsonl").read_text())
    assert (result["pl"], result["pp"], result["tg"]) == (2, 64, 4)
    assert result["speed_tg"] == 1.105206


def test_the_time_to_the_first_token_is_the_servers_own(recorded: Path) -> None:
    completion = json.loads((recorded / "llama-server-completion.json").read_text())
    assert first_token_seconds(completion) == pytest.approx(0.254658)


@pytest.mark.parametrize("printed", ["", "[\n", "[]"])
def test_a_program_that_prints_no_result_is_an_error(printed: str) -> None:
    with pytest.raises(PeerError, match="llama-bench printed no result"):
        parse_bench(printed)
    with pytest.raises(PeerError, match="llama-batched-bench printed no result"):
        parse_batched(printed)


def test_the_peer_is_named_after_the_quantization_of_its_file(tools: Path) -> None:
    [peer] = llama_cpp.find(tools, [Path("model.gguf")], threads=2)
    assert peer.name == "llama.cpp Q4_0"
    assert "model.gguf" in peer.version


def test_flash_attention_is_what_was_faster_the_first_time(tools: Path) -> None:
    peer = LlamaCpp(Tools(tools), Path("model.gguf"), threads=2)
    probes = len(calls(tools))
    assert peer.decode([[1] * 128], steps=32) == 7.5
    assert peer.decode([[1] * 128], steps=32) == 7.5
    flash = [call[call.index("-fa") + 1] for call in calls(tools)[probes:]]
    assert flash == ["on", "off", "off"]


def test_the_programs_get_the_threads_the_context_and_the_steps(tools: Path) -> None:
    peer = LlamaCpp(Tools(tools), Path("model.gguf"), threads=3)
    peer.decode([[1] * 128], steps=32)
    alone = " ".join(calls(tools)[-1])
    assert "llama-bench -m model.gguf -t 3 -ngl 0" in alone and "-p 0 -n 32 -d 128" in alone

    assert peer.decode([[1] * 512] * 4, steps=32) == 3.25
    batch = " ".join(calls(tools)[-1])
    assert "llama-batched-bench -m model.gguf -t 3 -ngl 0" in batch and "-npl 4 -npp 512 -ntg 32 -c 2176" in batch

    peer.prefill([1] * 2048)
    assert "-p 2048 -n 0" in " ".join(calls(tools)[-1])


def test_a_program_that_fails_is_an_error_with_what_it_said(tools: Path) -> None:
    program(tools, "llama-bench", "echo 'failed to load model' >&2; exit 1")
    with pytest.raises(PeerError, match="llama-bench failed: failed to load model"):
        llama_cpp.find(tools, [Path("model.gguf")], threads=2)


def test_a_program_that_is_not_there_is_named(tools: Path) -> None:
    peer = LlamaCpp(Tools(tools), Path("model.gguf"), threads=2)
    with pytest.raises(PeerError, match=f"llama-server was not found in {tools}"):
        peer.first_token_behind([1], [1])


def test_without_llama_cpp_the_user_learns_how_to_name_it(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="not found: .* --llama-cpp"):
        llama_cpp.find(tmp_path, [Path("model.gguf")], threads=2)


def test_without_a_gguf_file_the_user_learns_how_to_give_one(tools: Path) -> None:
    with pytest.raises(PeerError, match="--gguf or --quantize"):
        llama_cpp.find(tools, [], threads=2)


def test_a_source_is_quantized_once(tools: Path) -> None:
    source = tools / "source.gguf"
    source.write_bytes(b"weights")
    program(tools, "llama-quantize", 'cp "$2" "$3"')
    first = llama_cpp.quantized(tools, source)
    assert [path.name for path in first] == ["source-Q4_0.gguf", "source-Q8_0.gguf"]
    assert all(path.read_bytes() == b"weights" for path in first)
    assert llama_cpp.quantized(tools, source) == first
    assert len(calls(tools)) == 2

    source.write_bytes(b"other weights")
    assert llama_cpp.quantized(tools, source)[0].read_bytes() == b"other weights"


def test_a_quantization_that_fails_leaves_nothing(tools: Path) -> None:
    source = tools / "source.gguf"
    source.write_bytes(b"weights")
    program(tools, "llama-quantize", 'cp "$2" "$3"; echo "disk full" >&2; exit 1')
    with pytest.raises(PeerError, match="disk full"):
        llama_cpp.quantized(tools, source)
    program(tools, "llama-quantize", 'echo better > "$3"')
    assert llama_cpp.quantized(tools, source)[0].read_text() == "better\n"

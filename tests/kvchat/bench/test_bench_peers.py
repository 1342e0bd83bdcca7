"""`kvchat bench peers` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvchat import paths
from kvchat.cli.program import run

FITTING = ["decode, 1 x 128", "decode, 4 x 128", "prefill, 512"]
TOO_LONG = ["TTFT, 512 cached + 24"]


@pytest.fixture
def no_peers(tmp_path: Path) -> list[str]:
    """Options under which neither llama.cpp nor OpenVINO is found."""
    empty = tmp_path / "empty"
    empty.mkdir()
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named openvino_genai' >&2\nexit 1\n")
    python.chmod(0o755)
    return ["--llama-cpp", str(empty), "--openvino-python", str(python)]


def test_without_peers_kvchat_is_measured_beside_transformers(
    small_model: Path, no_peers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    paths.config_dir().mkdir(parents=True)
    paths.config_file().write_text('[engine]\ndtype = "float32"\nkv_memory = 8_000_000\ncontext_length = 560\n')
    assert run(["--model", str(small_model), "bench", "peers", "--quick", "--rounds", "1", "--json", *no_peers]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["starting the engines", "warming up", "round 1 of 1"]
    outcome = json.loads(printed.out)
    assert outcome["answer"].startswith("How many times better kvchat is than its peers: transformers (")
    report = outcome["measured"]
    assert [row["name"] for row in report["rows"]] == FITTING
    assert report["left_out"] == TOO_LONG
    assert report["failures"] == []
    assert list(report["engines"]) == ["kvchat", "transformers"]
    assert set(report["missing"]) == {"llama.cpp", "OpenVINO GenAI"}
    assert all(why.startswith("not found: ") for why in report["missing"].values())
    for row in report["rows"]:
        assert {engine: len(values) for engine, values in row["values"].items()} == {"kvchat": 1, "transformers": 1}
        assert row["ratios"]["transformers"] > 0
        assert (row["bandwidth_fraction"] is not None) == row["name"].startswith("decode")
    assert report["machine"]["cpu"] and report["machine"]["bandwidth_bytes_per_s"] > 0


def test_a_model_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--model", "/nowhere", "bench", "peers", "--quick"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("kvchat: model /nowhere does not exist")


def test_quantizing_without_the_program_is_one_line(
    small_model: Path, no_peers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    paths.config_dir().mkdir(parents=True)
    paths.config_file().write_text('[engine]\ndtype = "float32"\nkv_memory = 8_000_000\ncontext_length = 560\n')
    source = ["--quantize", str(small_model / "model.safetensors")]
    assert run(["--model", str(small_model), "bench", "peers", *no_peers, *source]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("kvchat: llama-quantize was not found in ")

"""`kvchat doctor`: one line per check, and the exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from kernels.cpu.tier import VARIABLE, tier
from kvchat import paths
from kvchat.cli.program import run


def findings(output: str) -> dict[str, tuple[str, str]]:
    """By subject: level and text."""
    rows = [line.split(maxsplit=2) for line in output.splitlines()]
    return {subject: (level, text) for level, subject, text in rows}


@pytest.mark.model
def test_a_sound_installation_passes(installed_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    found = findings(capsys.readouterr().out)
    assert {
        "python",
        "torch",
        "cpu",
        "bfloat16",
        "gpu",
        "device",
        "memory",
        "disk",
        "data",
        "settings",
        "model",
    } <= found.keys()
    assert {level for level, _ in found.values()} <= {"ok", "warn"}
    assert installed_model in found["model"][1]


def test_what_is_wrong_fails_and_says_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.config_dir().mkdir(parents=True)
    paths.config_file().write_text("modle = 'x'\n")
    blocked = home / "file"
    blocked.write_text("no folder can be made below a file")
    monkeypatch.setenv("XDG_DATA_HOME", str(blocked))
    assert run(["doctor"]) == 1
    found = findings(capsys.readouterr().out)
    assert found["settings"] == ("fail", f"{paths.config_file()}:1: key 'modle': unknown, did you mean 'model'?")
    assert found["data"][0] == "fail" and "XDG_DATA_HOME" in found["data"][1]
    assert found["model"][0] == "fail" and "kvchat pull" in found["model"][1]


@pytest.mark.model
def test_a_damaged_model_fails(home: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = paths.models_dir() / "smollm2-135m-instruct"
    damaged.mkdir(parents=True)
    (damaged / "config.json").write_bytes((model_folder / "config.json").read_bytes())
    assert run(["doctor"]) == 1
    assert findings(capsys.readouterr().out)["model"][0] == "fail"


@pytest.mark.parametrize(
    ("forced", "without_numba", "level", "words"),
    [
        ("portable", False, "ok", "native, portable"),
        ("mmx", False, "fail", "KVCHAT_CPU_TIER is 'mmx'"),
        ("", True, "warn", "torch only"),
    ],
)
def test_the_kernels_that_are_used_are_named(
    forced: str,
    without_numba: bool,
    level: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, forced)
    if without_numba:
        monkeypatch.setitem(sys.modules, "numba", None)
    tier.cache_clear()
    run(["doctor"])
    tier.cache_clear()
    found = findings(capsys.readouterr().out)["kernels"]
    assert found[0] == level and words in found[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_device_is_told_and_a_gpu_that_is_not_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor"])
    level, text = findings(capsys.readouterr().out)["device"]
    assert level == "ok" and text.startswith("cpu, computing in ")
    assert run(["--device", "cuda", "doctor"]) == 1
    level, text = findings(capsys.readouterr().out)["device"]
    assert level == "fail" and "device 'cuda' is not there" in text

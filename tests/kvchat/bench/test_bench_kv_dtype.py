"""`kvchat bench kv-dtype` and `kvchat calibrate` from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.kv_choice import Calibration, Choice, keep
from engine.model.beside import fingerprint
from kernels.kv_format import Groups
from kvchat.bench.kv_dtype.plan import QUICK
from kvchat.bench.kv_dtype.quality import Loss
from kvchat.bench.kv_dtype.report import Column, Report, answer
from kvchat.cli.program import run


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(small_model, tmp_path / "model")


def test_calibrate_prints_every_format_and_keeps_the_choice(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", str(model)]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[1] for line in printed.splitlines() if line.startswith("*")][:2] == ["int8", "int4"]
    choices = json.loads((model / "kv-calibration.json").read_text())["choices"]
    assert set(choices) == {"int8", "int4"}


def test_calibrate_reads_the_users_own_text(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 400)
    assert run(["--model", str(model), "calibrate", "--text", str(text), "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert {trial["kv_dtype"] for trial in outcome["trials"] if trial["chosen"]} == {"int8", "int4"}
    text.write_bytes(b"\xff\xfe")
    assert run(["calibrate", str(model), "--text", str(text)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"kvchat: {text}: not a text in UTF-8"


def test_the_comparison_holds_every_figure(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--model", str(model), "bench", "kv-dtype", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["measured"]
    assert list(report["columns"]) == ["auto", "int8", "int4"]
    auto, int8, int4 = report["columns"].values()
    assert auto["token_bytes"] > int8["token_bytes"] > int4["token_bytes"]
    for column in report["columns"].values():
        assert column["pool_token_bytes"] == column["token_bytes"]
    windows = report["plan"]["windows"]
    assert [loss["context"] for loss in int8["losses"]] == windows and windows
    assert auto["first_difference"] is None


def test_the_comparison_reads_as_tables_and_sentences(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--model", str(model), "bench", "kv-dtype", "--quick"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "bytes per token, by the formula",
        "perplexity, windows of",
        "first other reply",
        "int8 takes",
        "int4 takes",
    ):
        assert words in printed


def test_one_shot_says_on_stderr_what_the_cache_costs_when_that_is_too_much(home: Path, model: Path) -> None:
    int8 = Choice(Groups(8, 8), Groups(8, 8), 0.0, 0.0)
    int4 = Choice(Groups(4, 8), Groups(4, 8), 0.042, 0.1)
    assert keep(model, Calibration(fingerprint(model), 4096, {"int8": int8, "int4": int4}))
    for kv_dtype, lines in (("int8", 0), ("int4", 1)):
        command = [sys.executable, "-m", "kvchat", "--model", str(model), "--kv-dtype", kv_dtype, "--max-tokens", "3"]
        done = subprocess.run([*command, "-p", "Hi", "--json"], capture_output=True, timeout=120)
        assert done.returncode == 0
        assert json.loads(done.stdout)["kv"]["dtype"] == kv_dtype
        said = [line for line in done.stderr.decode().splitlines() if "perplexity +4.2% by the int4 KV cache" in line]
        assert len(said) == lines == len(done.stderr.splitlines())


def test_the_plan_says_what_the_cache_costs_when_that_is_too_much(
    home: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keep(model, Calibration(fingerprint(model), 4096, {"int4": Choice(Groups(4, 8), Groups(4, 8), 0.042, 0.1)}))
    plan = ["--model", str(model), "plan", "--context", "64", "--kv-dtype", "int4"]
    assert run(plan) == run([*plan, "--json"]) == 0
    text, _, report = capsys.readouterr().out.rpartition("\n{")
    warning = json.loads("{" + report)["kv_warning"]
    assert warning.startswith("perplexity +4.2% by the int4 KV cache")
    assert f"  warning   {warning}\n" in text


def test_the_sentence_names_the_limit_that_failed() -> None:
    losses = {"int8": Loss(512, -0.0009, 0.0025, 0.0, 1.0), "int4": Loss(512, 0.04, 0.1, 0.0, 1.0)}
    columns = {"auto": Column("float16", 100, 100.0)}
    columns |= {name: Column(name, 50, 50.0, losses=[loss]) for name, loss in losses.items()}
    assert answer(Report("m", 1024, QUICK, 0, columns)) == (
        "int8 takes 50% of the memory and changes perplexity by 0.09% at most, within its limit of 0.1%, with a KL of "
        "0.0025, more than its limit of 0.0020; int4 takes 50% of the memory and changes perplexity by 4.00% at most, "
        "more than its limit of 3.0%."
    )

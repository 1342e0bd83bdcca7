"""`kvchat bench interface`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvchat.cli.program import run


@pytest.mark.model
def test_the_lag_is_measured_while_two_tabs_stream(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--model", str(model_folder), "bench", "interface", "--seconds", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    lag = report["lag"]
    assert 0 < lag["p50"] <= lag["p95"] <= lag["max"]
    assert report["tokens"] > 0 and report["limit_s"] == 0.033


def test_without_an_engine_it_is_said_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert run(["--model", str(tmp_path), "bench", "interface", "--seconds", "1"]) == 1
    assert "Traceback" not in capsys.readouterr().err

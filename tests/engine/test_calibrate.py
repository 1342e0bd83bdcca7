"""Calibration: every candidate is measured, the smallest that loses little is chosen, and the engine uses it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from engine.calibrate import calibrate, candidates
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import ConfigError
from engine.kv_choice import GATES, Gate, keep

TEXT = "".join(random.Random(1).choices("abcdefgh ", k=3000))


@pytest.fixture
def config(tiny_model: Path, tmp_path: Path) -> EngineConfig:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    return EngineConfig(model=folder, dtype="float32", kv_memory=1 << 20, threads=1)


def test_the_smallest_format_within_its_gate_is_chosen_and_used(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kv_dtype in GATES:  # a random model loses more than a trained one
        monkeypatch.setitem(GATES, kv_dtype, Gate(1.0, float("inf")))
    heard: list[float] = []
    outcome = calibrate(config, TEXT, lambda stage, done: heard.append(done))
    assert outcome.calibration.tokens == 512
    assert heard[-1] == 1.0
    for kv_dtype in GATES:
        trials = [trial for trial in outcome.trials if trial.kv_dtype == kv_dtype]
        assert [trial.choice.format for trial in trials] == candidates(kv_dtype, 8)
        [chosen] = [trial for trial in trials if trial.chosen]
        assert chosen.passed
        assert chosen.token_bytes == min(trial.token_bytes for trial in trials if trial.passed)
        assert outcome.calibration.choices[kv_dtype] == chosen.choice
    assert all(0 < trial.token_bytes < outcome.token_bytes for trial in outcome.trials)

    assert keep(Path(config.model), outcome.calibration)
    for kv_dtype, choice in outcome.calibration.choices.items():
        engine = Engine(EngineConfig(model=config.model, dtype="float32", kv_memory=1 << 20, kv_dtype=kv_dtype))  # type: ignore[arg-type]
        assert engine._runner.kv_format == choice.format
        assert engine.info.kv_dtype == kv_dtype
        pool = engine.stats().pool
        assert pool.block_bytes == 16 * engine.info.kv_token_bytes
        assert engine.info.kv_warning == ""


def test_where_none_is_within_its_gate_the_most_faithful_is_chosen_and_the_engine_warns(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GATES, "int4", Gate(-1.0, 0.0))
    outcome = calibrate(config, TEXT, lambda stage, done: None)
    int4 = [trial for trial in outcome.trials if trial.kv_dtype == "int4"]
    [chosen] = [trial for trial in int4 if trial.chosen]
    assert not any(trial.passed for trial in int4)
    assert chosen.choice.divergence == min(trial.choice.divergence for trial in int4)
    keep(Path(config.model), outcome.calibration)
    engine = Engine(EngineConfig(model=config.model, dtype="float32", kv_memory=1 << 20, kv_dtype="int4"))
    assert "by the int4 KV cache" in engine.info.kv_warning


def test_a_text_that_shows_nothing_is_refused(config: EngineConfig) -> None:
    with pytest.raises(ConfigError, match="the text has 5 tokens; 512 are needed"):
        calibrate(config, "short", lambda stage, done: None)

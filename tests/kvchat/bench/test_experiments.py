"""Every experiment on a tiny random model: how its figures hang together, whatever the machine's speed."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from engine.api import GenerationRequest, ModelInfo, SamplingParams
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.model.config import ModelConfig
from kvchat.bench.experiment import LeftOut, Outcome, Setup
from kvchat.bench.experiments import EXPERIMENTS, batching, gqa, paged, prefix, recompute
from kvchat.bench.figures import number, spread
from kvchat.bench.load import Arrival, serve
from kvchat.bench.plot import draw
from kvchat.bench.variants import kv_heads, write_variant

NAMES = ("recompute", "paged", "batching", "prefix", "gqa")


@pytest.fixture(scope="module")
def setup(small_model: Path) -> Setup:
    config = EngineConfig(model=small_model, dtype="float32", kv_memory=4 << 20, threads=1)
    return Setup(config=config, quick=True, seed=3)


@pytest.fixture(scope="module")
def outcomes(setup: Setup) -> dict[str, Outcome]:
    return {each.name: each.perform(setup) for each in EXPERIMENTS if each.name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_outcome_has_an_answer_a_table_a_plot_and_a_record(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    result = outcome.result
    assert result.answer.endswith(".") and "\n" not in result.answer
    head, *rows = result.table
    assert rows and {len(row) for row in rows} == {len(head)}
    assert all(len(series.x) == len(series.y) > 1 for series in result.plot.series)
    assert all(series.name in draw(result.plot) for series in result.plot.series)
    assert result.ratios and all(ratio >= 0 for ratio in result.ratios.values())
    assert (
        "small, profile chat, dtype float32, kv_memory 4194304, threads 1, quick, seed 3, " in outcome.record()
        and "torch" in outcome.record()
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_outcome_is_one_flat_object_in_json(outcomes: dict[str, Outcome], name: str) -> None:
    plain = json.loads(json.dumps(outcomes[name].as_json()))
    assert list(plain) == [
        *("experiment", "claim", "command", "model", "profile", "settings", "config_file"),
        *("quick", "seed", "started", "seconds", "machine"),
        *("answer", "table", "plot", "ratios", "measured", "notes"),
    ]
    assert plain["experiment"] == name and plain["machine"]["versions"]["kvchat"]


def test_recompute_times_every_length_that_fits_both_ways(outcomes: dict[str, Outcome]) -> None:
    measured = outcomes["recompute"].result.measured
    assert measured["contexts"] == [128, 512]
    assert {name: [len(each) for each in column] for name, column in measured["seconds_per_token"].items()} == {
        "with": [1, 1],
        "without": [1, 1],
    }
    assert list(outcomes["recompute"].result.ratios)[0] == "512 / 128, with a KV cache"


def test_blocks_hold_more_conversations_than_reservations_in_the_same_memory(outcomes: dict[str, Outcome]) -> None:
    measured = outcomes["paged"].result.measured
    reserved, blocks = measured[paged.RESERVED], measured[paged.BLOCKS]
    assert reserved[paged.MOST] == [paged.SLOTS]
    assert blocks[paged.MOST][0] >= 2 * paged.SLOTS
    assert blocks[paged.HOLDING][0] > 1.5 * reserved[paged.HOLDING][0]
    assert reserved["preemptions"] == [0]


def test_continuous_batching_leaves_no_slot_idle_while_requests_wait(outcomes: dict[str, Outcome]) -> None:
    measured = outcomes["batching"].result.measured
    static, continuous = measured[batching.STATIC], measured[batching.CONTINUOUS]
    assert continuous[batching.IDLE] == [0] and static[batching.IDLE][0] > 20
    assert continuous[batching.STEPS][0] < static[batching.STEPS][0]


def test_the_seed_decides_what_is_drawn() -> None:
    for draw_requests in (lambda seed: batching.requests(seed, 1000), lambda seed: paged.requests(seed, 1024, 1000)):
        assert draw_requests("3 0") == draw_requests("3 0") != draw_requests("4 0")


def test_the_requests_differ_much_in_length_and_fit_into_a_reservation() -> None:
    lengths = [
        len(arrival.request.prompt_ids) + arrival.request.sampling.max_tokens
        for arrival in paged.requests("0 0", 1024, 1000)
    ]
    assert len(lengths) == 20 and max(lengths) <= 1024 and max(lengths) > 10 * min(lengths)


def test_prefix_measures_the_personas_that_fit(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["prefix"].result.measured["personas"] == [50, 300]


def test_gqa_allocates_memory_in_proportion_to_the_kv_heads_and_leaves_no_model_behind(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    measured = gqa.run(setup).measured
    assert measured["kv_heads"] == {"MHA": 4, "GQA": 2, "MQA": 1}
    assert measured["token_bytes"] == {kind: heads * 2 * 2 * 8 * 4 for kind, heads in measured["kv_heads"].items()}
    assert measured["token_bytes_by_formula"] == measured["token_bytes"]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("n_head", "n_kv_head", "expected"),
    [
        (9, 3, {"MHA": 9, "GQA": 3, "MQA": 1}),
        (32, 8, {"MHA": 32, "GQA": 8, "MQA": 1}),
        (32, 32, {"MHA": 32, "GQA": 8, "MQA": 1}),
        (8, 1, {"MHA": 8, "GQA": 2, "MQA": 1}),
        (7, 7, {"MHA": 7, "MQA": 1}),
    ],
)
def test_the_heads_between_are_the_models_own_or_near_a_quarter(
    small_model: Path, tmp_path: Path, n_head: int, n_kv_head: int, expected: dict[str, int]
) -> None:
    config = json.loads((small_model / "config.json").read_text())
    config |= {"num_attention_heads": n_head, "num_key_value_heads": n_kv_head, "head_dim": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert kv_heads(ModelConfig.read(tmp_path)) == expected


def test_a_variant_has_the_shape_asked_for(setup: Setup, small_model: Path, tmp_path: Path) -> None:
    write_variant(small_model, tmp_path, 4, 1, seed=0)
    info = Setup(config=EngineConfig(model=tmp_path, dtype="float32", kv_memory=1 << 20)).engine().info
    assert (info.n_layer, info.n_head, info.n_kv_head, info.head_dim) == (1, 4, 4, 8)


@pytest.mark.parametrize("experiment", [recompute, paged, batching, prefix, gqa])
def test_a_context_that_is_too_short_is_said(small_model: Path, experiment: object) -> None:
    short = EngineConfig(model=small_model, dtype="float32", kv_memory=4 << 20, context_length=48)
    with pytest.raises(LeftOut, match="context"):
        experiment.run(Setup(config=short, quick=True))  # type: ignore[attr-defined]


def test_requests_are_served_when_their_time_has_come(setup: Setup) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    arrivals = [Arrival(at_s, GenerationRequest((50 + n, 60), sampling)) for n, at_s in enumerate((0.0, 0.0, 0.2))]
    served = serve(setup.engine(), arrivals)
    assert [len(each.token_ids) for each in served.finished] == [3, 3, 3]
    assert [moment.rows for moment in served.moments] == [2, 2, 2, 1, 1, 1]
    assert served.seconds >= served.moments[-1].at_s > 0.2 > served.moments[2].at_s
    assert served.tokens_per_s == pytest.approx(9 / served.seconds)


def test_figures_have_three_digits_and_their_spread() -> None:
    assert [number(value) for value in (0.123, 4.567, 45.67, 4567.8, 4567)] == [
        "0.12",
        "4.57",
        "45.7",
        "4,568",
        "4,567",
    ]
    assert spread([2.0]) == "2.00" and spread([3.0, 1.0, 2.0]) == "2.00 (1.00-3.00)"


def test_recompute_names_a_cause_only_where_it_accounts_for_the_growth() -> None:
    model = ModelInfo("m", 8192, 2, 2, 1, 8, "float32", "float32", "float32", "", "cpu", 100_000_000, 20_000)

    def answer(grown: float) -> str:
        times = {"with": [[0.1], [0.1 * grown]], "without": [[0.1], [0.5]]}
        return recompute._result(model, [128, 4096], times).answer

    assert "grows 5.0-fold without a KV cache and grows 1.8-fold with one" in answer(1.8)
    assert "not flat, because behind 4,096 tokens this model reads 81.9 MB of keys and values a step" in answer(1.8)
    assert "not because of what is read" in answer(9.0) and "are 1.77 times as much" in answer(9.0)
    assert "and does not grow with one" in answer(0.7) and "not flat" not in answer(0.7)


def test_prefix_says_when_a_small_persona_gained_much() -> None:
    def answer(saved: float) -> str:
        times = {prefix.REUSED: [[0.02], [0.02]], prefix.COMPUTED: [[0.02 + saved], [2.0]]}
        return prefix._result([50, 3000], times).answer

    assert answer(0.01).endswith("; behind 50 tokens it saves only 10.0 ms, 1.5 times sooner.")
    assert answer(0.08).endswith("; behind 50 tokens, too, it gains much: 80.0 ms, 5.0 times sooner.")


def test_gqa_writes_no_model_for_a_device_that_is_not_there(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    absent = replace(setup, config=msgspec.structs.replace(setup.config, device="tpu"))
    with pytest.raises(ConfigError, match="device must be auto, cpu"):
        gqa.run(absent)

"""`kvchat plan`: arithmetic over a model's shape."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from engine.config import EngineConfig
from engine.engine import Engine
from engine.model.config import ModelConfig
from kernels.kv_format import Groups, KVFormat
from kvchat.bench.memory_plan import advise, plan
from kvchat.bench.plan_report import survey
from kvchat.cli.program import run
from kvchat.profiles import PROFILES

FLOAT16 = KVFormat(torch.float16, torch.float16)
GIB = 2**30


@pytest.fixture
def seven_billion(small_model: Path) -> ModelConfig:
    """The shape of a common model of 7 billion parameters with grouped queries."""
    return replace(ModelConfig.read(small_model), n_layer=32, n_head=32, n_kv_head=8, head_dim=128)


@pytest.fixture
def native_model(small_model: Path, tmp_path: Path) -> Path:
    """A model with a shape that the CPU's native kernels take, and nothing packed yet."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path / "native"
    shape = json.loads((small_model / "config.json").read_text()) | {"hidden_size": 64, "head_dim": 16}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(folder)
    for file in small_model.glob("tokenizer*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_token_of_32_layers_8_kv_heads_of_128_in_float16_takes_128_kib(seven_billion: ModelConfig) -> None:
    assert plan(seven_billion, FLOAT16, 1024, 1, GIB, 16).token_bytes == 128 * 1024


def test_the_planning_table_is_1_2_8_and_16_gib(seven_billion: ModelConfig) -> None:
    table = plan(seven_billion, FLOAT16, 1024, 1, GIB, 16).table
    assert [(need.context, need.conversations, need.kv_bytes) for need in table] == [
        (1024, 8, 1 * GIB),
        (2048, 8, 2 * GIB),
        (4096, 16, 8 * GIB),
        (8192, 16, 16 * GIB),
    ]


def test_without_grouped_queries_it_takes_four_times_as_much(seven_billion: ModelConfig) -> None:
    ungrouped = replace(seven_billion, n_kv_head=32)
    assert plan(ungrouped, FLOAT16, 1024, 1, GIB, 16).token_bytes == 512 * 1024


def test_int8_counts_its_scales_and_offsets(seven_billion: ModelConfig) -> None:
    int8 = KVFormat(Groups(8, 128), Groups(8, 128))
    assert plan(seven_billion, int8, 1024, 1, GIB, 16).token_bytes == 2 * 32 * 8 * (128 + 4)


def test_a_conversation_takes_whole_blocks(seven_billion: ModelConfig) -> None:
    planned = plan(seven_billion, FLOAT16, 17, 3, 10 * 16 * 128 * 1024, 16)
    assert planned.need.kv_bytes == 3 * 2 * 16 * 128 * 1024
    assert planned.fitting == 5


def test_the_command_prints_the_plan(small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "plan",
        "--model",
        str(small_model),
        "--context",
        "64",
        "--conversations",
        "4",
        "--kv-dtype",
        "float16",
    ]
    assert run([*arguments, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["token_bytes"] == 2 * 2 * 2 * 8 * 2
    assert planned["need"] == {"context": 64, "conversations": 4, "kv_bytes": 64 * 4 * 128}
    assert run(arguments) == 0
    assert "128 bytes a token: 2 layers x 2 KV heads x 32 bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kv_bytes", "conversations", "profile"),
    [
        (10, 1, "chat"),
        (10, 40, "chat"),
        (90, 8, "documents"),
        (90, 5, "chat"),
        (90, 1, "writer"),
        (600, 1, "documents"),
    ],
)
def test_the_profile_follows_from_how_much_a_conversation_weighs(
    kv_bytes: int, conversations: int, profile: str
) -> None:
    advised, reason = advise(kv_bytes, conversations, weight_bytes=100, pool_bytes=500)
    assert advised == profile
    assert reason.startswith(f"the keys and values of a conversation are {kv_bytes}% of the weights")


@pytest.mark.parametrize("kv_dtype", ["auto", "int4"])
def test_a_token_takes_the_memory_that_the_formula_says(small_model: Path, kv_dtype: str) -> None:
    # In a process of its own: in this one a pool may get memory that an earlier test gave back.
    command = ["--model", str(small_model), "plan", "--context", "64", "--kv-dtype", kv_dtype, "--json"]
    done = subprocess.run([sys.executable, "-m", "kvchat", *command], capture_output=True, check=True)
    report = json.loads(done.stdout)
    # The operating system hands out pages, of up to 2 MiB.
    assert report["measured_token_bytes"] == pytest.approx(report["token_bytes"], rel=0.1)


@pytest.mark.parametrize("weights", ["auto", "bf16", "int8", "int4"])
def test_the_weights_in_memory_are_those_of_the_engine_once_it_is_loaded(native_model: Path, weights: Any) -> None:
    config = EngineConfig(native_model, weights=weights, kv_memory=1 << 20)
    before = survey(config, 64, 1).weights
    loaded = Engine(config).info
    after = survey(config, 64, 1).weights
    assert after.step_bytes == loaded.weight_bytes and not after.is_bound
    assert before.is_bound == (weights == "auto")
    assert before.step_bytes >= after.step_bytes if weights == "auto" else before == after


def test_what_is_free_holds_what_fits(small_model: Path) -> None:
    report = survey(EngineConfig(small_model, dtype="float32"), 64, 1)
    one = 64 * report.plan.token_bytes
    assert report.weights.total + report.most * one <= report.free_bytes
    assert report.weights.total + (report.most + 1) * one > report.free_bytes
    more = survey(EngineConfig(small_model, dtype="float32"), 64, 2 * report.most)
    assert not more.as_json()["fits"]


def test_the_plan_names_what_was_measured_what_fits_and_the_profile(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan", "--model", str(small_model), "--context", "64", "--conversations", "4"]
    assert run([*arguments, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["fits"] and planned["most_conversations"] > 4
    assert planned["weights"]["step_bytes"] > 0 and planned["measured_token_bytes"] > 0
    assert planned["profile"] in PROFILES
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    for words in (
        "weights in memory",
        "measured",
        "are free, with room for",
        f"Profile: {planned['profile']}, ",
    ):
        assert words in printed
    assert run([*arguments[:-1], "1000000000"]) == 0
    assert "are free: too little." in capsys.readouterr().out


def test_conversations_contend_only_for_a_pool_that_does_not_hold_them() -> None:
    assert advise(90, 8, 100, 500)[1].endswith("and 8 contend for a pool that holds 5: 8 bits take half")
    assert advise(90, 8, 100, 500, packed=True)[1].endswith(": few at a time share it")
    assert advise(90, 5, 100, 500)[1].endswith("the pool holds all 5: what counts is how they share a step")


def test_the_share_of_a_conversation_is_that_of_the_format_asked_for(small_model: Path) -> None:
    for kv_dtype in ("float32", "int8"):
        report = survey(EngineConfig(small_model, dtype="float32", kv_dtype=kv_dtype), 512, 1)
        share = report.plan.need.kv_bytes / report.weights.step_bytes
        assert report.reason.startswith(f"the keys and values of a conversation are {share:.0%} of the weights")


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (16 * 1024, "holds 1 conversation of 64 tokens at once; more wait their turn."),
        (2**20, "holds 64 conversations of 64 tokens at once; engine.max_sequences lets 16 run, more wait their turn."),
    ],
)
def test_what_runs_at_once_is_bounded_by_the_pool_and_by_max_sequences(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], memory: int, words: str
) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text(f'[engine]\ndtype = "float32"\nkv_memory = {memory}\n')
    assert run(["--config", str(settings), "plan", "--model", str(small_model), "--context", "64"]) == 0
    assert words in capsys.readouterr().out


def test_more_context_than_the_model_has_is_refused(small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--model", str(small_model), "--context", "601"]) == 1
    assert capsys.readouterr().err == "kvchat: 601 tokens of context are more than the 600 of the model\n"
    assert run(["plan", "--model", str(small_model), "--conversations", "9" * 30]) == 2

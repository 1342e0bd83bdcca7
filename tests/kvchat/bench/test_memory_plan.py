"""`kvchat plan`: arithmetic over a model's shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from engine.model.config import ModelConfig
from kernels.kv_format import Groups, KVFormat
from kvchat.bench.memory_plan import plan
from kvchat.cli.program import run

FLOAT16 = KVFormat(torch.float16, torch.float16)
GIB = 2**30


@pytest.fixture
def seven_billion(small_model: Path) -> ModelConfig:
    """The shape of a common model of 7 billion parameters with grouped queries."""
    return replace(ModelConfig.read(small_model), n_layer=32, n_head=32, n_kv_head=8, head_dim=128)


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

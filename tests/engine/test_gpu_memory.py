"""What a GPU is asked to compute before its memory is shared out, and how much the pool gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.gpu_memory import largest_steps
from engine.kv_cache import count_blocks, default_cap
from engine.model.config import ModelConfig
from engine.model.decoder import READ_ROWS, Step
from kernels.kv_format import KVFormat

FLOAT16 = KVFormat(torch.float16, torch.float16)


@pytest.mark.parametrize("batch", [{}, {"max_batch_tokens": 40, "max_sequences": 39}, {"max_sequences": 1}])
@pytest.mark.parametrize("context_length", [30, 200, 9000])
def test_no_step_of_the_engine_is_larger(batch: dict[str, int], context_length: int) -> None:
    config = EngineConfig(model="any", **batch)  # type: ignore[arg-type]
    steps = list(largest_steps(config, context_length))
    for step in steps:
        check_is_sound(step, config.block_size)
        assert all(span.context == context_length for span in step.spans)
    assert max(len(step.token_ids) for step in steps) >= min(config.max_batch_tokens, context_length)
    assert max(len(step.spans) for step in steps) == config.max_sequences
    assert max(len(step.logit_rows) for step in steps) >= max(config.max_sequences, min(READ_ROWS, context_length))


def check_is_sound(step: Step, block_size: int) -> None:
    """It has what a pool of one block needs, and writes nothing."""
    rows = sum(span.rows for span in step.spans)
    assert rows == len(step.token_ids) == len(step.positions) == len(step.slots)
    assert set(step.slots) == {-1} and set(step.logit_rows) <= set(range(rows))
    for span in step.spans:
        assert set(span.block_table) == {0} and len(span.block_table) * block_size >= span.context >= span.rows


@pytest.fixture
def shape(tmp_path: Path) -> ModelConfig:
    """3 layers of 2 key/value heads of 8."""
    sizes = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6}
    more = {"num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 256, "rms_norm_eps": 1e-5}
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]} | sizes | more))
    return ModelConfig.read(tmp_path)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """One with 10 of 16 GiB free."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 << 30, 16 << 30))
    return torch.device("cuda", 0)


def test_the_pool_takes_nine_tenths_of_what_is_left_beside_a_step(gpu: torch.device, shape: ModelConfig) -> None:
    assert default_cap(gpu, workspace=2 << 30) == int(0.9 * (8 << 30))
    blocks = count_blocks(EngineConfig(model="any"), shape, FLOAT16, gpu, workspace=2 << 30)
    assert blocks == default_cap(gpu, workspace=2 << 30) // (2 * 3 * 2 * 8 * 2 * 16)


def test_a_pool_that_leaves_too_little_for_a_step_is_refused(gpu: torch.device, shape: ModelConfig) -> None:
    fits, not_so = (EngineConfig(model="any", kv_memory=gib << 30) for gib in (8, 9))
    assert count_blocks(fits, shape, FLOAT16, gpu, workspace=2 << 30) > 0
    with pytest.raises(ConfigError, match=r"kv_memory of 9,663,676,416 bytes does not fit: cuda:0 has 8,589,934,592"):
        count_blocks(not_so, shape, FLOAT16, gpu, workspace=2 << 30)


def test_where_weights_and_a_step_take_everything_there_is_no_block(gpu: torch.device, shape: ModelConfig) -> None:
    with pytest.raises(ConfigError, match="kv_memory of 0 bytes holds no block"):
        count_blocks(EngineConfig(model="any"), shape, FLOAT16, gpu, workspace=11 << 30)

"""The memory of the KV pool: how much it is, what it is stored in, and copies within it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from reference_models import save

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.kv_cache import CPU_DEFAULT_CAP, KVCache, count_blocks, default_cap
from engine.model.config import ModelConfig
from engine.runner import Chunk, ModelRunner
from kernels.kv_format import Groups, KVFormat

CPU = torch.device("cpu")
FLOAT32 = KVFormat(torch.float32, torch.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save("gqa", folder)
    return folder


@pytest.fixture
def model(folder: Path) -> ModelConfig:
    return ModelConfig.read(folder)


def test_without_a_cap_the_pool_takes_a_part_of_what_is_free(folder: Path, model: ModelConfig) -> None:
    assert 0 < default_cap(CPU) <= CPU_DEFAULT_CAP
    blocks = count_blocks(EngineConfig(model=folder), model, FLOAT32, CPU)
    block_bytes = 2 * 3 * 2 * 8 * 4 * 16
    assert 0.5 * default_cap(CPU) < blocks * block_bytes <= CPU_DEFAULT_CAP


def test_a_cap_that_the_machine_does_not_have_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"kv_memory: .* bytes for the KV cache could not be allocated"):
        ModelRunner(folder, EngineConfig(model=folder, kv_memory=1 << 60))


@pytest.mark.parametrize("format", [FLOAT32, KVFormat(Groups(8, 8), Groups(4, 8))], ids=str)
def test_copies_take_a_block_in_every_layer_in_order(model: ModelConfig, format: KVFormat) -> None:
    cache = KVCache(model, num_blocks=4, block_size=3, format=format, device=CPU)
    for number, layer in enumerate(cache.layers):
        for plane in layer:
            plane.blocks.copy_(torch.arange(4)[:, None] + 10 * number)
    cache.copy_blocks([(1, 2), (2, 3)])
    for number, layer in enumerate(cache.layers):
        for plane in layer:
            assert (plane.blocks == torch.tensor([0, 1, 1, 1])[:, None] + 10 * number).all()


def test_half_precision_keys_and_values_take_half_the_memory_and_change_little(folder: Path) -> None:
    logits, token_bytes = {}, {}
    for kv_dtype in ("float32", "float16"):
        config = EngineConfig(model=folder, dtype="float32", kv_dtype=kv_dtype, kv_memory=1 << 20)
        runner = ModelRunner(folder, config)
        runner.run([Chunk(range(40), 0, [3, 1, 7], False)])
        logits[kv_dtype] = runner.run([Chunk([5], 40, [3, 1, 7], True)])
        token_bytes[kv_dtype] = runner.info.kv_token_bytes
    assert token_bytes["float32"] == 2 * token_bytes["float16"]
    difference = (logits["float32"] - logits["float16"]).abs().max()
    assert 0 < difference < 0.02 * logits["float32"].abs().max()


def test_loading_tells_how_far_it_is(folder: Path) -> None:
    heard: list[tuple[str, float]] = []
    ModelRunner(folder, EngineConfig(model=folder, kv_memory=1 << 20), lambda *progress: heard.append(progress))
    assert [fraction for _, fraction in heard] == sorted(fraction for _, fraction in heard)
    assert heard[-1] == ("loading the weights", 1.0)

"""Taking tensors out of model folders: shards, fusing, casting, and what does not belong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from reference_models import save
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.config import EngineConfig
from engine.errors import ModelError
from engine.model.loader import Checkpoint
from engine.runner import Chunk, ModelRunner


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save("gqa", tmp_path)
    return tmp_path


def logits(folder: Path) -> Tensor:
    runner = ModelRunner(folder, EngineConfig(model=folder, dtype="float32", kv_memory=1 << 20))
    return runner.run([Chunk(range(20), 0, [3, 1], True)])


def rewrite(folder: Path, **changes: Tensor) -> None:
    weights = folder / "model.safetensors"
    save_file(load_file(weights) | changes, weights)


def open_checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(folder, torch.device("cpu"))


def test_shards_with_an_index_load_like_one_file(folder: Path) -> None:
    whole = logits(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    homes = {name: f"model-0000{1 + position % 3}-of-00003.safetensors" for position, name in enumerate(tensors)}
    for shard in set(homes.values()):
        save_file({name: tensor for name, tensor in tensors.items() if homes[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    assert torch.equal(logits(folder), whole)


def test_a_damaged_index_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(ModelError, match="index.json is damaged"):
        open_checkpoint(folder)


def test_tensors_taken_together_lie_under_one_another(folder: Path) -> None:
    first, second = ("model.layers.0.self_attn.q_proj.weight", (48, 48)), ("lm_head.weight", (320, 48))
    checkpoint = open_checkpoint(folder)
    both = checkpoint.take(first, second)
    assert torch.equal(both, torch.cat((checkpoint.take(first), checkpoint.take(second))))


def test_what_is_taken_does_not_change_with_the_file(folder: Path) -> None:
    taken = open_checkpoint(folder).take(("model.norm.weight", (48,)))
    before = taken.clone()
    weights = folder / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(bytes(weights.stat().st_size))
    assert torch.equal(taken, before)


def test_a_tensor_that_has_no_place_is_refused(folder: Path) -> None:
    rewrite(folder, **{"model.layers.3.mlp.down_proj.weight": torch.zeros(2, 2)})
    with pytest.raises(ModelError, match=r"model.safetensors: tensor model.layers.3.mlp.down_proj.weight has no place"):
        logits(folder)


def test_only_a_tied_model_may_come_without_a_head(folder: Path) -> None:
    weights, config = folder / "model.safetensors", folder / "config.json"
    tensors = load_file(weights)
    save_file({name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}, weights)
    with pytest.raises(ModelError, match=r"tensor lm_head.weight is missing"):
        logits(folder)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tie_word_embeddings": True}))
    tied = logits(folder)
    rewrite(folder, **{"lm_head.weight": 2 * tensors["model.embed_tokens.weight"]})
    torch.testing.assert_close(logits(folder), 2 * tied)  # a head that is there counts, whatever the config says


def test_rotary_frequencies_of_old_checkpoints_are_passed_over(folder: Path) -> None:
    before = logits(folder)
    rewrite(folder, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)})
    assert torch.equal(logits(folder), before)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantized_tensors_are_refused(folder: Path, dtype: torch.dtype) -> None:
    rewrite(folder, **{"model.norm.weight": torch.ones(48).to(dtype)})
    with pytest.raises(ModelError, match=r"model.safetensors: tensor model.norm.weight is stored as torch"):
        logits(folder)

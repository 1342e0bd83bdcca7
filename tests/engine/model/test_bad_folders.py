"""A damaged or foreign model folder is refused in one line that names the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from reference_models import save
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import ConfigError, ModelError
from engine.locate import REPAIR
from engine.runner import ModelRunner


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save("gqa", tmp_path / "model")
    return tmp_path / "model"


def load(folder: Path, **settings: object) -> ModelRunner:
    return ModelRunner(folder, EngineConfig(model=folder, dtype="float32", **({"kv_memory": 1 << 20} | settings)))  # type: ignore[arg-type]


def refused(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


def test_no_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "config.json" in refused(folder)


def test_a_config_that_is_not_json(folder: Path) -> None:
    (folder / "config.json").write_text("{nonsense")
    assert "config.json" in refused(folder)


def test_an_architecture_nobody_knows(folder: Path) -> None:
    edit_config(folder, architectures=["MambaForCausalLM"])
    assert "MambaForCausalLM" in refused(folder)


def test_a_size_that_is_missing(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["hidden_size"]
    (folder / "config.json").write_text(json.dumps(config))
    assert "hidden_size" in refused(folder)


def test_a_rope_kind_nobody_knows(folder: Path) -> None:
    edit_config(folder, rope_parameters={"rope_type": "spiral", "rope_theta": 10000.0})
    assert "spiral" in refused(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "safetensors" in refused(folder)


def test_truncated_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors" in refused(folder)


def test_weights_that_may_not_be_read_are_not_called_missing(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.chmod(0)
    if os.access(weights, os.R_OK):
        pytest.skip("this user may read everything")
    assert refused(folder) == f"{weights} cannot be read: Permission denied"


def test_what_is_damaged_comes_with_the_advice_that_always_helps(folder: Path) -> None:
    edit_config(folder, intermediate_size=96)
    assert refused(folder).endswith(f"; {REPAIR}")
    (folder / "model.safetensors").unlink()
    assert refused(folder).endswith(f"; {REPAIR}")


def test_a_tensor_that_is_missing(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    assert "model.layers.1.mlp.down_proj.weight" in refused(folder)


def test_a_tensor_of_another_shape(folder: Path) -> None:
    edit_config(folder, intermediate_size=96)
    assert "mlp" in refused(folder)


def test_a_shard_that_the_index_names_is_missing(folder: Path) -> None:
    index = {"weight_map": dict.fromkeys(load_file(folder / "model.safetensors"), "model-00001-of-00002.safetensors")}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-00001-of-00002.safetensors" in refused(folder)


def test_the_pool_is_exactly_what_fits_under_the_cap(folder: Path) -> None:
    runner = load(folder, kv_memory=100_000)
    assert runner.block_bytes == 2 * 3 * 2 * 8 * 4 * 16
    assert runner.num_blocks == 100_000 // runner.block_bytes
    assert runner.pool_bytes == runner.num_blocks * runner.block_bytes


def test_a_cap_that_holds_no_block(folder: Path) -> None:
    with pytest.raises(ConfigError, match="holds no block"):
        load(folder, kv_memory=1000)


def test_a_context_longer_than_the_model_was_trained_for(folder: Path) -> None:
    with pytest.raises(ConfigError, match="context_length of 999"):
        load(folder, context_length=999)


def test_a_device_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ConfigError, match="device"):
        load(folder, device="cuda:99")

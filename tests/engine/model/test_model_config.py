"""What the decoder reads out of config.json, in every spelling that model folders come in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelError
from engine.model.config import ModelConfig

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(**changes: Any) -> ModelConfig:
        values = {key: value for key, value in (LLAMA | changes).items() if value is not ...}
        (tmp_path / "config.json").write_text(json.dumps(values))
        return ModelConfig.read(tmp_path)

    return read


def test_what_is_not_said_follows_from_the_rest(read: Any) -> None:
    config = read()
    assert (config.n_head, config.n_kv_head, config.head_dim) == (8, 8, 8)
    assert (config.rope.kind, config.rope.theta) == ("default", 10000.0)
    assert config.activation == "silu"
    assert config.windows == (None,) * 4
    assert not config.tied_embeddings


def test_null_means_the_same_as_absent(read: Any) -> None:
    assert read(head_dim=None, num_key_value_heads=None, rope_scaling=None, sliding_window=None) == read()


def test_rotary_settings_of_transformers_4_and_5_mean_the_same(read: Any) -> None:
    older = read(rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3}).rope
    oldest = read(rope_theta=5e5, rope_scaling={"type": "llama3", **LLAMA3}).rope
    newer = read(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}).rope
    for rope in (older, oldest, newer):
        assert (rope.kind, rope.theta, rope.original_context) == ("llama3", 5e5, 64)
        assert LLAMA3.items() <= rope.parameters.items()


@pytest.mark.parametrize(
    ("said", "windows"),
    [
        ({"architectures": ["LlamaForCausalLM"], "sliding_window": 9}, (None,) * 4),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 9}, (9,) * 4),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 9, "max_window_layers": 2}, (None,) * 4),
        (
            {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 9}
            | {"max_window_layers": 3},
            (None, None, None, 9),
        ),
        (
            {"architectures": ["Qwen3ForCausalLM"], "use_sliding_window": True, "sliding_window": 9}
            | {"layer_types": ["sliding_attention", "full_attention"] * 2},
            (9, None, 9, None),
        ),
    ],
)
def test_which_layers_slide(read: Any, said: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert read(**said).windows == windows


def test_which_linears_have_a_bias(read: Any) -> None:
    def biases(architecture: str, **said: bool) -> tuple[bool, bool, bool]:
        config = read(architectures=[architecture], **said)
        return config.qkv_bias, config.out_bias, config.mlp_bias

    assert biases("LlamaForCausalLM") == (False, False, False)
    assert biases("LlamaForCausalLM", attention_bias=True, mlp_bias=True) == (True, True, True)
    assert biases("Qwen2ForCausalLM") == (True, False, False)
    assert biases("Qwen3ForCausalLM", attention_bias=True) == (True, True, False)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"vocab_size": ...}, "'vocab_size' is missing"),
        ({"hidden_size": "large"}, "'hidden_size' must be int, not 'large'"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' must be 1 or more, not 0"),
        ({"num_hidden_layers": True}, "'num_hidden_layers' must be int, not True"),
        ({"num_key_value_heads": 3}, "8 attention heads cannot share 3"),
        ({"head_dim": 7}, "even head size, not 7"),
        ({"hidden_act": "relu"}, "activation 'relu' is not supported"),
        ({"architectures": ...}, "architecture None is not supported"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized with 'gptq'"),
        ({"rope_scaling": {"type": "longrope"}}, "rotary scaling 'longrope' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "'linear' needs a number for 'factor'"),
        ({"partial_rotary_factor": 0.5}, "only a part of each head"),
    ],
    ids=str,
)
def test_a_config_that_no_decoder_fits_is_refused_in_one_line(read: Any, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match="config.json") as refusal:
        read(**wrong)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00"])
def test_a_damaged_config_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match="config.json is damaged") as refusal:
        ModelConfig.read(tmp_path)
    assert "\n" not in str(refusal.value)


def test_reading_a_config_needs_no_torch() -> None:
    code = "import engine.model.config, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

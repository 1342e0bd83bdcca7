"""Rotary angles of every kind of scaling against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.model.config import ModelConfig
from engine.model.rope import Rope

ORIGINAL = {"original_max_position_embeddings": 128}
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "yarn": {"factor": 4.0, **ORIGINAL},
    "yarn with its own speeds": {"factor": 4.0, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False, **ORIGINAL},
    "yarn with a given scale": {"factor": 4.0, "attention_factor": 0.7, **ORIGINAL},
    "yarn with mscale": {"factor": 4.0, "mscale": 1.2, "mscale_all_dim": 0.8, **ORIGINAL},
}
CONTEXT = 512


def both(scaling: str, folder: Path, context_length: int) -> tuple[Rope, LlamaRotaryEmbedding]:
    parameters = {"rope_type": scaling.split()[0], "rope_theta": 20000.0, **SCALINGS[scaling]}
    config = LlamaConfig(
        hidden_size=256, num_attention_heads=4, max_position_embeddings=CONTEXT, rope_parameters=parameters
    )
    (folder / "config.json").write_text(
        json.dumps(config.to_dict() | {"architectures": ["LlamaForCausalLM"]}, default=str)
    )
    return Rope(ModelConfig.read(folder).rope, 64, context_length), LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_angles_of_every_position(scaling: str, tmp_path: Path) -> None:
    rope, reference = both(scaling, tmp_path, CONTEXT)
    positions = torch.arange(CONTEXT)
    cos, sin = rope.cos_sin(positions, torch.float32)
    expected_cos, expected_sin = reference(torch.empty(0), positions.unsqueeze(0))
    sign = torch.tensor([-1.0, 1.0]).repeat_interleave(32)
    torch.testing.assert_close(cos.squeeze(1), expected_cos[0], atol=2e-5, rtol=0)
    torch.testing.assert_close(sin.squeeze(1), expected_sin[0] * sign, atol=2e-5, rtol=0)


def test_dynamic_scaling_is_fixed_to_the_context_of_the_engine(tmp_path: Path) -> None:
    rope, reference = both("dynamic", tmp_path, 4 * CONTEXT)
    position = torch.tensor([[4 * CONTEXT - 1]])
    expected_cos, _ = reference(torch.empty(0), position)  # transformers scales by the longest position it has seen
    cos, _ = rope.cos_sin(position[0], torch.float32)
    torch.testing.assert_close(cos.squeeze(1), expected_cos[0], atol=2e-4, rtol=0)

"""Settings out of range are refused with what was expected."""

from __future__ import annotations

import os

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [
        ("kv_memory", 0, "kv_memory must be above 0 bytes, not 0"),
        ("block_size", 0, "block_size must be between 1 and 256 tokens, not 0"),
        ("max_sequences", 0, "max_sequences must be 1 or more, not 0"),
        ("max_batch_tokens", 16, "max_batch_tokens must be above max_sequences (16), not 16"),
        ("context_length", 1, "context_length must be 2 or more, not 1"),
        ("pin_fraction", 1.0, "pin_fraction must be between 0 and 0.9, not 1.0"),
        ("threads", 5000, f"threads must be between 1 and {os.cpu_count()} here, not 5000"),
    ],
)
def test_a_setting_out_of_range(setting: str, value: float, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig(model="any", **{setting: value})  # type: ignore[arg-type]
    assert str(caught.value) == complaint

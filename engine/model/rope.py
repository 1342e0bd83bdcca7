"""Rotary position embedding (Su et al. 2021) and the published ways to stretch it over a longer context."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.model.config import RopeConfig


class Rope:
    """Angles of every position; made once for one context length, since cached keys are stored rotated.

    "dynamic" (NTK) scaling grows with the context: here it is fixed to the context length of the engine.
    """

    def __init__(
        self, config: RopeConfig, head_dim: int, context_length: int, device: torch.device | None = None
    ) -> None:
        frequencies, scale = inverse_frequencies(config, head_dim, context_length)
        self._frequencies = frequencies.tile(2).to(device)
        self._scale = torch.full_like(self._frequencies, scale)
        self._signed_scale = torch.cat((-self._scale[: head_dim // 2], self._scale[head_dim // 2 :]))

    def cos_sin(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """positions [T] int64 -> cos, sin [T, 1, head_dim] as `kernels.contract.Kernels.rotary_kv_write` takes them."""
        angles = positions[:, None, None] * self._frequencies
        return angles.cos().mul_(self._scale).to(dtype), angles.sin().mul_(self._signed_scale).to(dtype)


def inverse_frequencies(config: RopeConfig, head_dim: int, context_length: int) -> tuple[Tensor, float]:
    """Radians per position of each pair of values, [head_dim / 2] float32, and the factor on cos and sin."""
    factor = config.parameters.get("factor", 1.0)
    theta = config.theta
    if config.kind == "dynamic":
        # NTK-aware: instead of squeezing positions, raise the base so that only low frequencies are stretched.
        stretch = factor * max(context_length, config.original_context) / config.original_context - (factor - 1)
        theta *= stretch ** (head_dim / (head_dim - 2))
    frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if config.kind == "linear":
        return frequencies / factor, 1.0
    if config.kind == "llama3":
        return _llama3(frequencies, config), 1.0
    if config.kind == "yarn":
        return _yarn(frequencies, config, head_dim), _yarn_scale(config)
    return frequencies, 1.0


def _llama3(frequencies: Tensor, config: RopeConfig) -> Tensor:
    """Llama 3.1: keep wavelengths that fit often into the original context, stretch those that hardly fit, blend
    between."""
    low, high = config.parameters["low_freq_factor"], config.parameters["high_freq_factor"]
    turns = config.original_context * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * kept + frequencies / config.parameters["factor"] * (1 - kept)


def _yarn(frequencies: Tensor, config: RopeConfig, head_dim: int) -> Tensor:
    """YaRN (Peng et al. 2023), "NTK by parts": the same blend, linear in the index of the pair."""

    def pair_that_turns(times: float) -> float:
        """The pair, counted in values, that turns that often within the original context."""
        return head_dim * math.log(config.original_context / (times * 2 * math.pi)) / (2 * math.log(config.theta))

    first = pair_that_turns(config.parameters.get("beta_fast") or 32)
    last = pair_that_turns(config.parameters.get("beta_slow") or 1)
    if config.parameters.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    pairs = torch.arange(head_dim // 2, dtype=torch.float32)
    stretched = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)
    return frequencies / config.parameters["factor"] * stretched + frequencies * (1 - stretched)


def _yarn_scale(config: RopeConfig) -> float:
    """YaRN's temperature of the attention scores, as a factor on queries and keys."""

    def temperature(mscale: float) -> float:
        factor = config.parameters["factor"]
        return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0

    if (given := config.parameters.get("attention_factor")) is not None:
        return given
    mscale, mscale_all = config.parameters.get("mscale"), config.parameters.get("mscale_all_dim")
    return temperature(mscale) / temperature(mscale_all) if mscale and mscale_all else temperature(1.0)

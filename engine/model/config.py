"""What config.json of a Hugging Face model folder says about a decoder. Importable without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

from engine.errors import ModelError
from engine.locate import REPAIR

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh"]] = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
ROPE_PARAMETERS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}
"""The kinds of rotary scaling, with the parameters that each must have."""


class RopeConfig(msgspec.Struct, frozen=True):
    """Rotary embedding: base frequency, kind of scaling and its parameters, under their Hugging Face names."""

    theta: float
    kind: str
    parameters: dict[str, Any]
    original_context: int
    """Tokens of context that the scaling starts from."""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of one decoder. Sizes count values, not bytes."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    n_layer: int
    n_head: int
    n_kv_head: int
    head_dim: int
    activation: Literal["silu", "gelu_tanh"]
    norm_eps: float
    rope: RopeConfig
    context_length: int
    """Tokens that the model was trained for."""
    windows: tuple[int | None, ...]
    """Per layer: the tokens that a query sees, itself included; None: all before it."""
    tied_embeddings: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Raises ModelError when config.json is missing, damaged, or describes something the decoder is not."""
        return _read(_Json(folder / "config.json"))


class _Json:
    """A JSON object whose mistakes are reported with file and key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ModelError(f"{path} is missing: this is no model folder") from None
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ModelError(f"{path} is damaged ({error}); {REPAIR}") from None
        if not isinstance(self.values, dict):
            raise ModelError(f"{path} is damaged (not a JSON object); {REPAIR}")

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The value of a key, or the default when it is absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = kind if isinstance(kind, tuple) else (kind,)
            raise self.error(f"key {key!r} must be {' or '.join(k.__name__ for k in names)}, not {value!r}")
        return value

    def require(self, key: str, kind: type | tuple[type, ...]) -> Any:
        value = self.get(key, kind)
        if value is None:
            raise self.error(f"key {key!r} is missing")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.require(key, int) if default is None else self.get(key, int, default)
        if value < 1:
            raise self.error(f"key {key!r} must be 1 or more, not {value}")
        return value

    def error(self, problem: str) -> ModelError:
        return ModelError(f"{self.path}: {problem}")


def _read(config: _Json) -> ModelConfig:
    architecture = next(iter(config.get("architectures", list, [])), None)
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise config.error(f"architecture {architecture!r} is not supported (supported: {known})")
    if quantization := config.get("quantization_config", dict):
        method = quantization.get("quant_method", "unknown")
        raise config.error(f"weights quantized with {method!r} are not supported; use the unquantized model")

    hidden_size, n_head = config.size("hidden_size"), config.size("num_attention_heads")
    n_kv_head = config.size("num_key_value_heads", n_head)
    head_dim = config.size("head_dim", hidden_size // n_head)
    if n_head % n_kv_head:
        raise config.error(f"{n_head} attention heads cannot share {n_kv_head} key/value heads evenly")
    if head_dim % 2:
        raise config.error(f"rotary embedding needs an even head size, not {head_dim}")
    activation = config.get("hidden_act", str, "silu")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise config.error(f"activation {activation!r} is not supported (supported: {known})")

    context_length = config.size("max_position_embeddings")
    qwen2 = architecture == "Qwen2ForCausalLM"
    bias = config.get("attention_bias", bool, False) and architecture != "MistralForCausalLM"
    return ModelConfig(
        architecture=architecture,
        vocab_size=config.size("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.size("intermediate_size"),
        n_layer=config.size("num_hidden_layers"),
        n_head=n_head,
        n_kv_head=n_kv_head,
        head_dim=head_dim,
        activation=ACTIVATIONS[activation],
        norm_eps=config.require("rms_norm_eps", (float, int)),
        rope=_rope(config, context_length),
        context_length=context_length,
        windows=_windows(config, architecture),
        tied_embeddings=config.get("tie_word_embeddings", bool, False),
        qkv_bias=qwen2 or bias,
        out_bias=bias and not qwen2,
        mlp_bias=architecture == "LlamaForCausalLM" and config.get("mlp_bias", bool, False),
        qk_norm=architecture == "Qwen3ForCausalLM",
    )


def _windows(config: _Json, architecture: str) -> tuple[int | None, ...]:
    """Mistral slides on every layer; Qwen only when told to, on the layers listed or from max_window_layers on."""
    n_layer = config.size("num_hidden_layers")
    window = config.get("sliding_window", int)
    if architecture == "LlamaForCausalLM" or window is None:
        return (None,) * n_layer
    if architecture == "MistralForCausalLM":
        return (window,) * n_layer
    if not config.get("use_sliding_window", bool, False):
        return (None,) * n_layer
    if kinds := config.get("layer_types", list):
        if len(kinds) != n_layer:
            raise config.error(f"key 'layer_types' must name {n_layer} layers, not {len(kinds)}")
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    full = config.get("max_window_layers", int, n_layer)
    return tuple(window if layer >= full else None for layer in range(n_layer))


def _rope(config: _Json, context_length: int) -> RopeConfig:
    """transformers 5 writes one `rope_parameters`, transformers 4 `rope_theta` beside an optional `rope_scaling`."""
    parameters = config.get("rope_parameters", dict) or config.get("rope_scaling", dict) or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in ROPE_PARAMETERS:
        raise config.error(f"rotary scaling {kind!r} is not supported (supported: {', '.join(ROPE_PARAMETERS)})")
    if parameters.get("partial_rotary_factor", config.get("partial_rotary_factor", (float, int), 1)) != 1:
        raise config.error("a rotary embedding of only a part of each head is not supported")
    for key in ROPE_PARAMETERS[kind]:
        if not isinstance(parameters.get(key), float | int):
            raise config.error(f"rotary scaling {kind!r} needs a number for {key!r}, not {parameters.get(key)!r}")
    return RopeConfig(
        theta=parameters.get("rope_theta") or config.get("rope_theta", (float, int), 10000.0),
        kind=kind,
        parameters=parameters,
        original_context=parameters.get("original_max_position_embeddings") or context_length,
    )

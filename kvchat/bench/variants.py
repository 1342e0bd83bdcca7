"""Models of another's shape with another number of KV heads, and random weights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.model.config import ModelConfig
from kvchat.catalogue.folder import weight_files

SIZE = 15 / 1024
"""Of every weight, with a random sign: what any format packs without loss, and at once."""


def kv_heads(model: ModelConfig) -> dict[str, int]:
    """The numbers of KV heads that the same query heads go with: MHA, MQA, and the model's own in between or, if it
    has none there, the one nearest to a quarter of the query heads."""
    between = [heads for heads in range(2, model.n_head) if model.n_head % heads == 0]
    own = [model.n_kv_head] if model.n_kv_head in between else between
    grouped = {"GQA": min(own, key=lambda heads: abs(heads - model.n_head / 4))} if own else {}
    return {"MHA": model.n_head, **grouped, "MQA": 1}


def write_variant(source: Path, folder: Path, n_kv_head: int, n_layer: int, seed: int) -> None:
    """Write a model like the one in `source`, of its first `n_layer` layers, into the empty `folder`."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config |= {"num_key_value_heads": n_kv_head, "num_hidden_layers": n_layer}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (source / name).exists():
            (folder / name).symlink_to((source / name).resolve())
    rows = n_kv_head * ModelConfig.read(source).head_dim
    random = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for path in weight_files(source):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no dict
                layer = re.search(r"\.layers\.(\d+)\.", name)
                if layer and int(layer[1]) >= n_layer:
                    continue
                shape = file.get_slice(name).get_shape()
                if re.search(r"\.[kv]_proj\.", name):
                    shape = [rows, *shape[1:]]
                signs = torch.randint(0, 2, shape, generator=random, dtype=torch.int8)
                tensors[name] = torch.ones(shape) if "norm" in name else (2 * signs - 1).half() * SIZE
    save_file(tensors, folder / "model.safetensors")

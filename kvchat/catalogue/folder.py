"""Model folders on disk: are they whole, and what is in them. Reads headers and JSON only, without torch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.locate import installed_names, models_dir
from kvchat.catalogue.tensor_file import read_header

INDEX = "model.safetensors.index.json"
REPAIR = "the model folder is damaged or partial; `kvchat pull` it again"


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A whole model in the models folder."""

    name: str
    path: Path
    architecture: str
    parameters: int
    disk_bytes: int
    context_length: int
    kv_token_bytes: int
    """2 x layers x KV heads x head_dim x 2: keys and values of one token in a 16-bit dtype."""


def validate(folder: Path) -> None:
    """Raise ModelError, naming the file, when a model folder is damaged or partial."""
    read_config(folder)
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{folder} has no tokenizer.json; {REPAIR}")
    _read_json(folder / "tokenizer.json")
    for shard, names in weight_files(folder).items():
        absent = names - read_header(shard).keys()
        if absent:
            raise ModelError(f"{shard} lacks tensor {min(absent)}, which {INDEX} places there; {REPAIR}")


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder. Raises ModelError when it is missing or no JSON object."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json, so it is no model folder")
    return _read_json(folder / "config.json")


def weight_files(folder: Path) -> dict[Path, set[str]]:
    """The safetensors files of a folder, each with the tensors that the index, if there is one, places in it.

    Raises ModelError when there are none or a listed one is absent.
    """
    if (folder / INDEX).is_file():
        shards: dict[Path, set[str]] = {}
        weight_map = _read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ModelError(f"{folder / INDEX} has no weight_map; {REPAIR}")
        for tensor, file in weight_map.items():
            shards.setdefault(folder / file, set()).add(tensor)
    else:
        shards = {path: set() for path in sorted(folder.glob("*.safetensors"))}
    if not shards:
        raise ModelError(f"{folder} has no safetensors weights; {REPAIR}")
    for shard in shards:
        if not shard.is_file():
            raise ModelError(f"{shard} is missing, which {INDEX} lists; {REPAIR}")
    return shards


def describe(name: str, folder: Path) -> InstalledModel:
    """What a model folder holds. Raises ModelError when it is damaged or partial."""
    validate(folder)
    config = read_config(folder)
    headers = [read_header(shard) for shard in weight_files(folder)]
    try:
        n_head = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // n_head
        n_kv_head = config.get("num_key_value_heads") or n_head
        return InstalledModel(
            name=name,
            path=folder,
            architecture=config["architectures"][0],
            parameters=sum(math.prod(tensor["shape"]) for header in headers for tensor in header.values()),
            disk_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
            context_length=config["max_position_embeddings"],
            kv_token_bytes=2 * config["num_hidden_layers"] * n_kv_head * head_dim * 2,
        )
    except (KeyError, IndexError, TypeError) as error:
        raise ModelError(f"{folder / 'config.json'} does not describe a decoder ({error!r})") from None


def installed() -> list[InstalledModel]:
    """The whole models in the models folder, by name."""
    return [entry for entry in survey() if isinstance(entry, InstalledModel)]


def survey() -> list[InstalledModel | ModelError]:
    """Every folder under the models folder: the model, or what is wrong with it."""
    found: list[InstalledModel | ModelError] = []
    for name in installed_names():
        try:
            found.append(describe(name, models_dir() / name))
        except ModelError as error:
            found.append(error)
    return found


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ModelError(f"{path} is no JSON ({error}); {REPAIR}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} does not hold a JSON object; {REPAIR}")
    return content

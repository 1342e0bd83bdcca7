"""Model folders on disk: are they whole, and what is in them. Reads headers and JSON only, without torch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.locate import REPAIR, installed_names, models_dir, require_readable
from engine.model.config import ModelConfig
from engine.prompt import PromptBuilder
from engine.tokenizer import Tokenizer
from kvchat.catalogue.tensor_file import read_header

INDEX = "model.safetensors.index.json"

KV_BYTES = 2


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
    """2 x layers x KV heads x head_dim x bytes: keys and values of one token in a 16-bit dtype."""


def validate(folder: Path) -> None:
    """Raise ModelError, naming the file, when a model folder is damaged, partial or of an unsupported kind.

    Everything is read as the engine will read it, but for the tensors behind the headers of their files.
    """
    ModelConfig.read(folder)
    tokenizer = Tokenizer(folder)
    try:
        PromptBuilder(tokenizer)
    except ModelError as error:
        raise ModelError(f"{folder}: {error}") from None
    for shard, names in weight_files(folder).items():
        absent = names - read_header(shard).keys()
        if absent:
            raise ModelError(f"{shard} lacks tensor {min(absent)}, which {INDEX} places there; {REPAIR}")


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
    config = ModelConfig.read(folder)
    tensors = [tensor for shard in weight_files(folder) for tensor in read_header(shard).values()]
    return InstalledModel(
        name=name,
        path=folder,
        architecture=config.architecture,
        parameters=sum(math.prod(tensor["shape"]) for tensor in tensors),
        disk_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        context_length=config.context_length,
        kv_token_bytes=2 * config.n_layer * config.n_kv_head * config.head_dim * KV_BYTES,
    )


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
    root = models_dir()
    for folder in filter(Path.is_dir, (root, *root.glob("[!.]*/"))):  # what is in an unreadable one has no name
        try:
            require_readable(folder)
        except ModelError as error:
            found.append(error)
    return found


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged ({error}); {REPAIR}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} is damaged (not a JSON object); {REPAIR}")
    return content

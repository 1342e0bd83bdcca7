"""Reads the tensors of a Hugging Face checkpoint: safetensors files, one or several with an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import ModelError
from engine.locate import REPAIR

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class Checkpoint:
    """The tensors of a model folder by name. Files stay mapped while this lives; only what is taken is in memory.

    Raises ModelError, naming file and tensor, when files or tensors are missing, damaged, unexpected or misshapen.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._folder, self._device = folder, device
        self._homes: dict[str, tuple[Path, Any]] = {}
        for path in _shards(folder):
            file = _open(path)
            self._homes |= {name: (path, file) for name in file.keys()}  # noqa: SIM118 - it is no dict
        self._unused = set(self._homes)

    def __contains__(self, name: str) -> bool:
        return name in self._homes

    def take(self, *parts: tuple[str, tuple[int, ...]]) -> Tensor:
        """The named tensors of the given shapes, one under the other, on the device and in the dtype they have."""
        return torch.cat([self._tensor(name, shape).to(self._device) for name, shape in parts])

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._homes:
            raise ModelError(f"{self._folder}: tensor {name} is missing; {REPAIR}")
        path, file = self._homes[name]
        self._unused.discard(name)
        try:
            tensor = file.get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"{path}: tensor {name} cannot be read ({error}); {REPAIR}") from None
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{path}: tensor {name} has shape {list(tensor.shape)}, config.json says {list(shape)}; {REPAIR}"
            )
        if not tensor.is_floating_point() or tensor.itemsize == 1:
            raise ModelError(f"{path}: tensor {name} is stored as {tensor.dtype}; only plain floats are supported")
        return tensor

    def check_all_taken(self) -> None:
        """Raises ModelError when tensors are left that would change what the model computes."""
        left = sorted(name for name in self._unused if not name.endswith(".rotary_emb.inv_freq"))
        if left:
            path, _ = self._homes[left[0]]
            others = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise ModelError(f"{path}: tensor {left[0]}{others} has no place in the model that config.json describes")


def _shards(folder: Path) -> list[Path]:
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    index = folder / INDEX
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except FileNotFoundError:
        raise ModelError(f"{folder} has neither {SINGLE} nor {INDEX}: the weights are missing; {REPAIR}") from None
    except OSError as error:
        raise ModelError(f"{index} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is damaged ({type(error).__name__}: {error}); {REPAIR}") from None
    return [folder / name for name in sorted(names)]


def _open(path: Path) -> Any:
    try:
        path.open("rb").close()  # safe_open calls every file that it cannot open missing
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise ModelError(f"{path} is missing; {REPAIR}") from None
    except SafetensorError as error:
        raise ModelError(f"{path} is damaged or incomplete ({error}); {REPAIR}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None

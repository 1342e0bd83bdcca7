"""The safetensors format: eight bytes of header length, a JSON header, then the tensors back to back.

Written here tensor by tensor, so that converting a model needs the memory of one tensor; read here without torch.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import ModelError
from engine.locate import REPAIR

ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
"""The dtypes that are written."""

MAX_HEADER_BYTES = 100_000_000
"""The limit of the format's own reader."""


class TensorSpec(NamedTuple):
    """What the header says of one tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def write_tensors(path: Path, specs: Iterable[TensorSpec], values: Callable[[str], Iterable[bytes]]) -> None:
    """Write a safetensors file; `values(name)` yields the little-endian bytes of a tensor in row-major pieces.

    Wider dtypes come first, which keeps every tensor aligned.
    """
    ordered = sorted(specs, key=lambda spec: (-ITEM_BYTES[spec.dtype], spec.name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for spec in ordered:
        header[spec.name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": [end, end + spec.nbytes]}
        end += spec.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for spec in ordered:
            for piece in values(spec.name):
                file.write(piece)


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """The header of a safetensors file by tensor name: dtype, shape, data_offsets.

    Raises ModelError when the file is no safetensors file or is shorter than its header says.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= MAX_HEADER_BYTES:
                raise ModelError(f"{path} is no safetensors file; {REPAIR}")
            text = file.read(length)
            if len(text) < length:
                raise ModelError(f"{path} is cut off inside its header; {REPAIR}")
            header = json.loads(text)
            header.pop("__metadata__", None)
            end = 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ModelError(f"{path} has a damaged safetensors header; {REPAIR}") from None
    if size < end:
        raise ModelError(f"{path} is cut off: it has {size:,} of {end:,} bytes; {REPAIR}")
    return header

"""Which format the KV cache has: what `kv_dtype` says, and for int8 and int4 the choice that `kvchat calibrate` made
for the model, kept beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from engine.errors import ConfigError
from engine.locate import cache_dir
from engine.model.beside import Beside, fingerprint
from engine.model.config import ModelConfig
from kernels.kv_format import Groups, KVFormat

FILE = "kv-calibration.json"
GROUP_SIZES = (16, 32, 64)
"""And the whole head, where it is longer."""
OTHER_STATE = "the calibration is of another state of the model: run kvchat calibrate"


class Gate(NamedTuple):
    """What a format may lose against a full-precision cache before kvchat warns of it."""

    perplexity: float
    """Increase, as a fraction."""
    divergence: float
    """Mean Kullback-Leibler divergence of the next token's distribution, nats."""


GATES = {"int8": Gate(0.001, 0.002), "int4": Gate(0.03, float("inf"))}


class Choice(msgspec.Struct, frozen=True):
    """A format and what it was measured to lose."""

    keys: Groups
    values: Groups
    perplexity: float
    divergence: float

    @property
    def format(self) -> KVFormat:
        return KVFormat(self.keys, self.values)


class Calibration(msgspec.Struct, frozen=True):
    model: list[tuple[str, int, int]]
    """The `fingerprint` of the model it was measured on."""
    tokens: int
    """How long the text was, read as one context."""
    choices: dict[str, Choice]
    """One for each of GATES."""


def group_sizes(head_dim: int) -> list[int]:
    """From the smallest to the whole head."""
    return [size for size in GROUP_SIZES if size < head_dim and head_dim % size == 0] + [head_dim]


def default_format(kv_dtype: str, head_dim: int) -> KVFormat:
    """What int8 and int4 mean for a model that was not calibrated."""
    int8 = Groups(8, head_dim, rotated=True)
    # Keys of 4 bits cost small models far more than values do: which keys are attended to is decided by them.
    return KVFormat(int8, int8 if kv_dtype == "int8" else Groups(4, head_dim, rotated=True))


def choose_format(kv_dtype: str, model: ModelConfig, folder: Path, compute: torch.dtype) -> tuple[KVFormat, str]:
    """The format of the cache, and a warning when it is known to lose more than its gate allows, or when
    what is known is of another state of the model.

    Raises ConfigError when the model cannot have it.
    """
    if kv_dtype not in GATES:
        dtype = compute if kv_dtype == "auto" else getattr(torch, kv_dtype)
        return KVFormat(dtype, dtype), ""
    if model.head_dim % 2:
        raise ConfigError(f"kv_dtype {kv_dtype!r} needs an even head_dim; this model's is {model.head_dim}")
    warning = ""
    for calibration in stored(folder):
        if calibration.model == fingerprint(folder):
            break
        warning = OTHER_STATE
    else:
        return default_format(kv_dtype, model.head_dim), warning
    choice, gate = _fitting(calibration, kv_dtype, model.head_dim), GATES[kv_dtype]
    if passes(choice, gate):
        return choice.format, ""
    # The figure first: the panel has room for a few words.
    return choice.format, (
        f"perplexity {choice.perplexity:+.1%} by the {kv_dtype} KV cache: more than the {gate.perplexity:.1%} "
        f"it should cost (KL {choice.divergence:.4f}, over {calibration.tokens:,} tokens)"
    )


def _fitting(calibration: Calibration, kv_dtype: str, head_dim: int) -> Choice:
    """The choice that was kept, which somebody may have edited. Raises ConfigError when a cache cannot have it."""
    choice, sizes = calibration.choices.get(kv_dtype), group_sizes(head_dim)
    bits = [8] if kv_dtype == "int8" else [4, 8]
    if choice is None or any(
        groups.bits not in bits or groups.size not in sizes for groups in (choice.keys, choice.values)
    ):
        raise ConfigError(
            f"{FILE} has no {kv_dtype} format that fits this model, whose groups are of "
            f"{' or '.join(map(str, bits))} bits and of {', '.join(map(str, sizes))} values: "
            "correct it, or run `kvchat calibrate` again"
        )
    return choice


def passes(choice: Choice, gate: Gate) -> bool:
    return choice.perplexity <= gate.perplexity and choice.divergence <= gate.divergence


def keep(folder: Path, calibration: Calibration) -> bool:
    """Write it beside the model, or to the cache folder. False when neither can be written."""
    text = msgspec.json.format(msgspec.json.encode(calibration))
    return _file(folder).write(lambda path: path.write_bytes(text))


def stored(folder: Path) -> Iterator[Calibration]:
    """What was kept, of whatever state of the model. Raises ConfigError for what cannot be read."""
    for path in _file(folder).paths:
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Calibration)
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{path} cannot be read ({error}): delete it, or run `kvchat calibrate` again") from None


def _file(folder: Path) -> Beside:
    return Beside(folder, FILE, cache_dir() / "calibration")

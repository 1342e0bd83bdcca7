"""Measures what the formats of an int8 and an int4 KV cache cost on a model, and chooses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.kv_choice import GATES, Calibration, Choice, group_sizes, passes
from engine.locate import model_folder
from engine.model.beside import fingerprint
from engine.quality import load_to_read, read
from engine.tokenizer import Tokenizer
from kernels.kv_format import Groups, KVFormat

TOKENS = 4096
"""Short texts do not show what a format loses over a long conversation."""
LEAST_TOKENS = 512


class Trial(NamedTuple):
    """One format, measured."""

    kv_dtype: str
    choice: Choice
    agreement: float
    """Share of the positions at which the likeliest token is that of a full-precision cache."""
    token_bytes: int
    chosen: bool
    passed: bool


class Outcome(NamedTuple):
    calibration: Calibration
    perplexity: float
    """With a full-precision cache."""
    token_bytes: int
    """Of that cache."""
    trials: list[Trial]


def candidates(kv_dtype: str, head_dim: int) -> list[KVFormat]:
    """Keys and values alike, and for int4 also keys of 8 bits, which most of the loss comes from."""
    bits = {"int8": 8, "int4": 4}[kv_dtype]
    alike = [Groups(bits, size, rotated) for size, rotated in product(group_sizes(head_dim), (False, True))]
    formats = [KVFormat(groups, groups) for groups in alike]
    if kv_dtype == "int4":
        formats += [KVFormat(Groups(8, head_dim, rotated=True), groups) for groups in alike]
    return formats


def calibrate(config: EngineConfig, text: str, on_progress: Callable[[str, float], None]) -> Outcome:
    """Read the beginning of `text` with every candidate. For int8 and for int4 the smallest format that passes its gate
    is chosen, the most faithful of equals; where none passes, the most faithful.

    Raises ConfigError when the text is too short, ModelError when the model cannot be loaded.
    """
    folder = model_folder(config.model)
    runner = load_to_read(folder, config, on_progress)
    tokens = Tokenizer(folder).encode(text)[: min(TOKENS, runner.info.context_length)]
    if len(tokens) < LEAST_TOKENS:
        raise ConfigError(f"the text has {len(tokens):,} tokens; {LEAST_TOKENS:,} are needed, and {TOKENS:,} are used")
    formats = [(kv_dtype, format) for kv_dtype in GATES for format in candidates(kv_dtype, runner.config.head_dim)]
    runners = [runner.with_cache(format, len(tokens)) for format in (runner.kv_format, *(f for _, f in formats))]
    full, *readings = read(runners, tokens, lambda fraction: on_progress("measuring", fraction))

    trials = []
    for (kv_dtype, format), reading, twin in zip(formats, readings, runners[1:], strict=True):
        loss = reading.perplexity / full.perplexity - 1
        choice = Choice(*format, loss, reading.divergence.mean().item())  # type: ignore[arg-type]
        agreement = reading.agreement.mean().item()
        passed = passes(choice, GATES[kv_dtype])
        trials.append(Trial(kv_dtype, choice, agreement, twin.info.kv_token_bytes, chosen=False, passed=passed))
    choices = {}
    for kv_dtype in GATES:
        best = min((trial for trial in trials if trial.kv_dtype == kv_dtype), key=_rank)
        trials[trials.index(best)] = best._replace(chosen=True)
        choices[kv_dtype] = best.choice
    calibration = Calibration(fingerprint(folder), len(tokens), choices)
    return Outcome(calibration, full.perplexity, runners[0].info.kv_token_bytes, trials)


def _rank(trial: Trial) -> tuple[bool, int, float]:
    """The smaller the better."""
    return not trial.passed, trial.token_bytes if trial.passed else 0, trial.choice.divergence

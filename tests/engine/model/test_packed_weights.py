"""Packed weights on disk: packed once, and again whenever that gives other bytes or the file is no good."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from reference_models import save
from safetensors.torch import load_file, save_file

from engine.model.config import ModelConfig
from engine.model.loader import Checkpoint
from engine.model.packed import PackedWeights
from engine.model.weights import ModelTensors
from kernels.cpu import packing
from kernels.cpu.weights import NativeWeights

CHILD = """
import os, signal, sys
from pathlib import Path
import torch
from engine.model.config import ModelConfig
from engine.model.loader import Checkpoint
from engine.model.packed import PackedWeights
from engine.model.weights import ModelTensors

folder, spare, when = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
config = ModelConfig.read(folder)
packed = PackedWeights(folder, "int8", spare)
if when == "before renaming":
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if when == "together":
    print("ready", flush=True)
    sys.stdin.readline()

def report(fraction):
    if when == "while packing":
        print("packing", flush=True)
        sys.stdin.readline()

tensors = ModelTensors(config, Checkpoint(folder, torch.device("cpu")))
tensors.embedding
packed.load(config, tensors, report)
"""


def tensors_of(folder: Path) -> ModelTensors:
    """With the embedding taken, which is not packed."""
    tensors = ModelTensors(ModelConfig.read(folder), Checkpoint(folder, torch.device("cpu")))
    assert len(tensors.embedding)
    return tensors


class Folders:
    def __init__(self, root: Path, original: Path) -> None:
        self.model, self.spare = root / "a model", root / "cache" / "packed"
        shutil.copytree(original, self.model)

    @property
    def packed(self) -> Path:
        return self.model / "packed-int8.tiles"

    def load(self, format: str = "int8") -> tuple[NativeWeights, list[float]]:
        """The weights, and what was told of packing them: nothing where they were stored."""
        config, progress = ModelConfig.read(self.model), list[float]()
        packed = PackedWeights(self.model, format, self.spare)
        return packed.load(config, tensors_of(self.model), progress.append), progress

    def packs(self, format: str = "int8") -> bool:
        return bool(self.load(format)[1])

    def start(self, when: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self.model), str(self.spare), when],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    save("biases", folder)
    return folder


@pytest.fixture
def folders(tmp_path: Path, original: Path) -> Folders:
    return Folders(tmp_path, original)


def same(ours: NativeWeights, theirs: NativeWeights) -> bool:
    return all(
        a.bits == b.bits and torch.equal(a.tiles, b.tiles)
        for a, b in zip(ours.linears(), theirs.linears(), strict=True)
    )


def test_packing_tells_how_far_it_is_and_happens_once(folders: Folders) -> None:
    first, progress = folders.load()
    assert progress == pytest.approx([1 / 3, 2 / 3, 1])
    second, progress = folders.load()
    assert progress == []
    assert same(first, second)
    assert folders.packed.is_file()
    assert not folders.spare.exists()
    assert sorted(path.name for path in folders.model.glob("*packed*")) == ["packed-int8.tiles"]


def test_the_bytes_are_those_of_each_weight_packed_alone(folders: Folders) -> None:
    weights, _ = folders.load("int4")
    tensors = tensors_of(folders.model)
    for number, layer in enumerate(weights.layers):
        for field in ("qkv", "out", "gate_up", "down"):
            linear = getattr(layer, field)
            assert torch.equal(linear.tiles, packing.pack(tensors.weight(number, field), "int4")[0])
            assert torch.equal(linear.bias, tensors.bias(number, field))
    assert torch.equal(weights.head.tiles, packing.pack(tensors.head, "int8")[0])  # 4 bits would cost too much here


def test_formats_are_kept_beside_each_other(folders: Folders) -> None:
    assert folders.packs("int8") and folders.packs("int4") and folders.packs("auto")
    assert {linear.bits for linear in folders.load("int4")[0].linears()} == {4, 8}  # 8 for the head
    assert {linear.bits for linear in folders.load("int8")[0].linears()} == {8}
    assert not any(folders.packs(format) for format in ("int8", "int4", "auto"))


def replace_model(folders: Folders) -> None:
    """Other weights of the same size."""
    path = folders.model / "model.safetensors"
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))


def grow_model(folders: Folders) -> None:
    """Another size with the same time."""
    path = folders.model / "model.safetensors"
    before = path.stat().st_mtime_ns
    save_file(load_file(path) | {"unused.rotary_emb.inv_freq": torch.zeros(4)}, path)
    os.utime(path, ns=(before, before))


def change_config(folders: Folders) -> None:
    path = folders.model / "config.json"
    path.write_text(path.read_text() + "\n")


def truncate(folders: Folders) -> None:
    folders.packed.write_bytes(folders.packed.read_bytes()[:-100])


def empty(folders: Folders) -> None:
    folders.packed.write_bytes(b"")


def another_kind(folders: Folders) -> None:
    folders.packed.write_text("these are no weights")


def a_model(folders: Folders) -> None:
    shutil.copy(folders.model / "model.safetensors", folders.packed)


def of_another_format(folders: Folders) -> None:
    folders.load("int4")
    (folders.model / "packed-int4.tiles").replace(folders.packed)


@pytest.mark.parametrize(
    "change", [replace_model, grow_model, change_config, truncate, empty, another_kind, a_model, of_another_format]
)
def test_it_packs_again_after_a_change(folders: Folders, change: Callable[[Folders], None]) -> None:
    first, _ = folders.load()
    assert not folders.packs()
    change(folders)
    again, progress = folders.load()
    assert progress
    assert same(first, again)
    assert not folders.packs()


def test_it_packs_again_for_another_layout(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.load()
    monkeypatch.setattr(packing, "LAYOUT", packing.LAYOUT + 1)
    assert folders.packs()
    assert not folders.packs()


def test_where_the_model_folder_cannot_be_written_to_the_spare_folder_is(folders: Folders) -> None:
    folders.packed.mkdir()  # no file can take its place
    assert folders.packs()
    assert not folders.packs()
    assert len(list(folders.spare.iterdir())) == 1
    assert list(folders.model.glob("*.partial")) == []


def test_models_of_one_name_have_spare_files_of_their_own(tmp_path: Path, original: Path) -> None:
    both = [Folders(tmp_path / name, original) for name in "ab"]
    for folders in both:
        folders.spare = tmp_path / "spare"
        folders.packed.mkdir()
        assert folders.packs()
    assert not any(folders.packs() for folders in both)
    assert len(list((tmp_path / "spare").iterdir())) == 2


def test_where_nothing_can_be_written_it_packs_each_time(folders: Folders, caplog: pytest.LogCaptureFixture) -> None:
    folders.packed.mkdir()
    assert folders.packs()
    [spare] = folders.spare.iterdir()
    spare.unlink()
    spare.mkdir()
    assert folders.packs()
    assert folders.packs()
    assert "packed-int8.tiles cannot be written" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
@pytest.mark.parametrize("when", ["while packing", "before renaming"])
def test_a_process_that_dies_while_it_packs_leaves_nothing_in_the_way(folders: Folders, when: str) -> None:
    with folders.start(when) as child:
        assert child.stdin is not None and child.stdout is not None
        if when == "while packing":
            assert child.stdout.readline() == "packing\n"
            child.kill()
    assert child.returncode == -signal.SIGKILL
    assert not folders.packed.exists()
    assert folders.packs()
    assert not folders.packs()


def test_two_processes_may_pack_at_once(folders: Folders) -> None:
    children = [folders.start("together") for _ in range(2)]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
        assert child.returncode == 0
    assert not folders.packs()
    assert list(folders.model.glob("*.partial")) == []

"""Which format an int8 or int4 cache has: the usual one, or what calibration chose for the model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

from engine.errors import ConfigError
from engine.kv_choice import Calibration, Choice, choose_format, default_format, group_sizes, keep, stored
from engine.model.beside import fingerprint
from engine.model.config import ModelConfig
from kernels.kv_format import Groups, KVFormat

INT8, INT4 = Groups(8, 8), Groups(4, 8, rotated=True)


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = tmp_path / "model"
    copy.mkdir()
    for file in tiny_model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def calibrated(folder: Path, *, int4_loss: float = 0.01) -> Calibration:
    choices = {"int8": Choice(INT8, INT8, 0.0002, 0.0001), "int4": Choice(INT8, INT4, int4_loss, 0.0123)}
    return Calibration(fingerprint(folder), 4096, choices)


def choose(kv_dtype: str, folder: Path) -> tuple[KVFormat, str]:
    return choose_format(kv_dtype, ModelConfig.read(folder), folder, torch.bfloat16)


def test_floats_are_stored_as_they_are(folder: Path) -> None:
    assert choose("auto", folder) == (KVFormat(torch.bfloat16, torch.bfloat16), "")
    assert choose("float32", folder) == (KVFormat(torch.float32, torch.float32), "")


def test_without_a_calibration_there_are_usual_formats(folder: Path) -> None:
    int8, int4 = Groups(8, 8, rotated=True), Groups(4, 8, rotated=True)
    assert choose("int8", folder) == (KVFormat(int8, int8), "")
    assert choose("int4", folder) == (KVFormat(int8, int4), "")


@pytest.mark.parametrize("head_dim", [8, 16, 32, 64, 80, 96, 112, 128, 256])
def test_groups_fit_every_head(head_dim: int) -> None:
    assert all(head_dim % size == 0 for size in group_sizes(head_dim))
    for kv_dtype in ("int8", "int4"):
        for groups in default_format(kv_dtype, head_dim):
            assert isinstance(groups, Groups) and head_dim % groups.size == 0


def test_what_calibration_chose_is_used(folder: Path) -> None:
    assert keep(folder, calibrated(folder))
    assert choose("int8", folder) == (KVFormat(INT8, INT8), "")
    assert choose("int4", folder) == (KVFormat(INT8, INT4), "")


def test_a_format_beyond_its_gate_comes_with_the_figure(folder: Path) -> None:
    keep(folder, calibrated(folder, int4_loss=0.042))
    format, warning = choose("int4", folder)
    assert format == KVFormat(INT8, INT4)
    assert warning.startswith("perplexity +4.2% by the int4 KV cache") and "3.0%" in warning and "4,096" in warning
    assert choose("int8", folder)[1] == ""


def test_a_calibration_goes_with_a_copy_of_the_model(folder: Path, tmp_path: Path) -> None:
    keep(folder, calibrated(folder))
    copy = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(copy / "model.safetensors", (1, 1))
    assert choose("int8", copy) == (KVFormat(INT8, INT8), "")


@pytest.mark.parametrize(("file", "changed"), [("config.json", b"\n "), ("model.safetensors", b"\x01")])
def test_a_calibration_of_another_state_of_the_model_does_not_count_and_that_is_said(
    folder: Path, file: str, changed: bytes
) -> None:
    keep(folder, calibrated(folder))
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:-1] + changed)
    warning = "the calibration is of another state of the model: run kvchat calibrate"
    assert choose("int4", folder) == (default_format("int4", 8), warning)
    assert choose("auto", folder)[1] == ""


def test_it_is_kept_in_the_cache_folder_where_the_model_cannot_be_written(folder: Path) -> None:
    (folder / "kv-calibration.json").mkdir()
    assert keep(folder, calibrated(folder))
    (folder / "kv-calibration.json").rmdir()
    assert list(stored(folder)) == [calibrated(folder)]


def test_a_damaged_calibration_is_one_line_that_says_what_to_do(folder: Path) -> None:
    (folder / "kv-calibration.json").write_text('{"choices": {"int8"')
    with pytest.raises(
        ConfigError, match=r"kv-calibration.json cannot be read .*: delete it, or run `kvchat calibrate`"
    ):
        choose("int4", folder)


def test_a_format_of_the_users_own_is_used(folder: Path) -> None:
    own = Choice(Groups(4, 8), Groups(8, 8, rotated=True), 0.01, 0.01)
    keep(folder, Calibration(fingerprint(folder), 4096, {"int4": own}))
    assert choose("int4", folder) == (KVFormat(own.keys, own.values), "")


@pytest.mark.parametrize("groups", [Groups(4, 3), Groups(5, 8), Groups(8, 0), Groups(4, 16)], ids=str)
def test_a_format_that_does_not_fit_is_one_line_with_those_that_do(folder: Path, groups: Groups) -> None:
    keep(folder, Calibration(fingerprint(folder), 4096, {"int4": Choice(INT8, groups, 0.01, 0.01)}))
    for kv_dtype in ("int4", "int8"):
        with pytest.raises(ConfigError, match=f"no {kv_dtype} format that fits this model, .* of 8 values: correct it"):
            choose(kv_dtype, folder)


def test_int8_does_not_mean_fewer_bits(folder: Path) -> None:
    keep(folder, Calibration(fingerprint(folder), 4096, {"int8": Choice(Groups(4, 8), INT8, 0.01, 0.01)}))
    with pytest.raises(ConfigError, match="no int8 format that fits this model, whose groups are of 8 bits"):
        choose("int8", folder)

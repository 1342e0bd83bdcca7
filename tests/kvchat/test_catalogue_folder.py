"""A damaged model folder is recognised, and the error names the file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf_maker import TinyGGUF
from safetensors.numpy import load_file, save_file

from engine.errors import ModelError
from engine.locate import models_dir
from kvchat.catalogue.folder import describe, installed, survey, validate
from kvchat.catalogue.gguf import convert
from kvchat.catalogue.progress import silent

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("whole")
    TinyGGUF().write(base / "tiny.gguf")
    (base / "tiny").mkdir()
    convert(base / "tiny.gguf", base / "tiny", silent)
    return base / "tiny"


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "tiny")


def shard(folder: Path) -> None:
    """Split model.safetensors into two shards with an index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in halves.items() for name in part}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "model.safetensors").unlink()


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def lose_a_shard(folder: Path) -> None:
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def lose_a_tensor(folder: Path) -> None:
    shard(folder)
    save_file({"other": np.zeros(1, np.float32)}, folder / "model-00001-of-00002.safetensors")


def test_a_whole_folder_passes_in_one_file_or_in_shards(folder: Path) -> None:
    validate(folder)
    shard(folder)
    validate(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: shutil.rmtree(folder), "config.json is missing: this is no model folder"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing: this is no model folder"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged"),
        (lambda folder: (folder / "config.json").write_text("{}"), "config.json: architecture None is not supported"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
        (lambda folder: cut(folder / "tokenizer.json", 500), "tokenizer.json is damaged"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json is damaged"),
        (lambda folder: cut(folder / "tokenizer_config.json", 10), "tokenizer_config.json is damaged"),
        (lambda folder: (folder / "tokenizer_config.json").write_text("[]"), "tokenizer_config.json is damaged"),
        (lambda folder: (folder / "generation_config.json").write_text("{"), "generation_config.json is damaged"),
        (lambda folder: (folder / "special_tokens_map.json").write_text("?"), "special_tokens_map.json is damaged"),
        (lambda folder: (folder / "chat_template.jinja").write_text("{% if %}"), "chat template is broken at line 1"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no safetensors weights"),
        (lambda folder: cut(folder / "model.safetensors", 0), "model.safetensors is no safetensors file"),
        (lambda folder: cut(folder / "model.safetensors", 100), "model.safetensors is cut off inside its header"),
        (lambda folder: cut(folder / "model.safetensors", 200_000), "model.safetensors is cut off: it has 200,000 of"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{]"),
            "model.safetensors has a damaged safetensors header",
        ),
        (lose_a_shard, "model-00002-of-00002.safetensors is missing, which model.safetensors.index.json lists"),
        (lose_a_tensor, "model-00001-of-00002.safetensors lacks tensor"),
    ],
)
def test_damage_is_named(damage: Callable[[Path], object], message: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises(ModelError) as found:
        validate(folder)
    assert message in str(found.value)
    assert str(folder) in str(found.value)
    assert "\n" not in str(found.value)


def test_a_model_is_described_from_its_headers(folder: Path) -> None:
    model = describe("tiny", folder)
    assert model.parameters == sum(value.size for value in TinyGGUF().weights().values())
    assert model.architecture == "LlamaForCausalLM"
    assert model.context_length == 128
    assert model.kv_token_bytes == 2 * 2 * 2 * 16 * 2
    assert model.disk_bytes == sum(file.stat().st_size for file in folder.iterdir())


def test_a_survey_lists_whole_models_and_what_is_wrong_with_others(whole: Path) -> None:
    assert survey() == []
    shutil.copytree(whole, models_dir() / "b")
    shutil.copytree(whole, models_dir() / "owner" / "a")
    (shutil.copytree(whole, models_dir() / "broken") / "tokenizer.json").unlink()
    found = survey()
    assert [entry.name for entry in installed()] == ["b", "owner/a"]
    assert len(found) == 3 and sum(isinstance(entry, ModelError) for entry in found) == 1


def test_a_survey_says_which_folder_may_not_be_read(whole: Path) -> None:
    folder = shutil.copytree(whole, models_dir() / "tiny")
    folder.chmod(0)
    if os.access(folder, os.R_OK):
        pytest.skip("this user may read everything")
    found = survey()
    folder.chmod(0o700)
    assert [str(entry) for entry in found] == [f"{folder} cannot be read: Permission denied"]


def test_the_default_models_description(model_folder: Path) -> None:
    model = describe("smollm2-135m-instruct", model_folder)
    assert round(model.parameters / 1e6, 1) == 134.5
    assert model.context_length == 8192
    assert model.kv_token_bytes == 2 * 30 * 3 * 64 * 2


def test_looking_at_models_brings_no_torch_and_no_transformers() -> None:
    check = (
        "import sys, kvchat.catalogue.folder, kvchat.catalogue.pull; "
        "sys.exit(bool({'torch', 'transformers', 'gguf', 'huggingface_hub'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0

"""A pull installs a model whole or not at all, whatever happens on the way."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from gguf_maker import TinyGGUF

from engine.errors import ModelError
from engine.locate import installed_names, model_folder, models_dir
from kvchat.catalogue.folder import validate
from kvchat.catalogue.progress import Progress
from kvchat.catalogue.pull import pull
from kvchat.catalogue.space import require_space

PULL_AND_WAIT = """
import sys
from kvchat.catalogue.pull import pull

def wait_here(progress):
    if progress.stage == "converting":
        print("converting", flush=True)
        sys.stdin.read()

pull(sys.argv[1], wait_here)
"""

PULL = """
import sys
from engine.errors import ModelError
from kvchat.catalogue.pull import pull

try:
    pull(sys.argv[1])
except ModelError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    TinyGGUF().write(tmp_path / "Tiny.Q4.gguf")
    return tmp_path / "Tiny.Q4.gguf"


@pytest.fixture
def source(gguf: Path, tmp_path: Path) -> Path:
    """A model folder outside the models folder."""
    return pull(gguf, into=tmp_path / "elsewhere").rename(tmp_path / "tiny")


def leftovers() -> list[str]:
    """What pulls left in the models folder beside the models, apart from the locks."""
    return [path.name for path in models_dir().glob(".pulling/*") if path.suffix != ".lock"]


def test_a_gguf_file_installs_under_its_own_name(gguf: Path) -> None:
    folder = pull(str(gguf))
    assert folder == model_folder("Tiny.Q4")
    validate(folder)
    assert leftovers() == []


def test_a_model_folder_is_linked_where_the_disk_allows_it_and_its_small_files_are_copied(source: Path) -> None:
    folder = pull(source)
    validate(folder)
    assert (folder / "model.safetensors").samefile(source / "model.safetensors")
    assert not (folder / "config.json").samefile(source / "config.json")


def test_a_model_folder_on_another_disk_is_copied(source: Path, tmp_path: Path) -> None:
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir() or shared_memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to copy from")
    name = f"kvchat-test-{os.getpid()}"
    other = shared_memory / name
    subprocess.run(["cp", "-r", source, other], check=True)
    try:
        folder = pull(other)
    finally:
        subprocess.run(["rm", "-r", other], check=True)
    validate(folder)
    assert folder.name == name


def test_progress_names_the_stages_in_order(gguf: Path) -> None:
    reports: list[Progress] = []
    pull(gguf, reports.append)
    assert list(dict.fromkeys(report.stage for report in reports)) == ["reading", "converting", "checking"]


def test_what_is_installed_already_stays_as_it_is(gguf: Path) -> None:
    folder = pull(gguf)
    reports: list[Progress] = []
    assert pull(folder, reports.append) == folder
    assert [report.stage for report in reports] == ["already installed"]


def test_another_file_of_the_same_name_does_not_replace_a_whole_model(gguf: Path) -> None:
    before = (pull(gguf) / "model.safetensors").stat().st_ino
    with pytest.raises(ModelError, match=r"a model named Tiny\.Q4 is installed already"):
        pull(gguf)
    assert (model_folder("Tiny.Q4") / "model.safetensors").stat().st_ino == before


def test_a_damaged_model_is_replaced(gguf: Path) -> None:
    (pull(gguf) / "tokenizer.json").unlink()
    validate(pull(gguf))
    assert leftovers() == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2-135m-instrukt", r"unknown model .* no known name \(smollm2-135m-instruct\), no existing path"),
        ("a/b/c", "unknown model 'a/b/c'"),
        ("/nowhere/model", "/nowhere/model does not exist"),
        ("./missing.gguf", r"missing\.gguf does not exist"),
        ("missing.gguf", r"missing\.gguf does not exist"),
    ],
)
def test_what_names_nothing_is_one_clear_line(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        pull(name)


def test_a_damaged_source_installs_nothing(gguf: Path, source: Path) -> None:
    gguf.write_bytes(gguf.read_bytes()[:-1000])
    (source / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes()[:-1000])
    for damaged in (gguf, source):
        with pytest.raises(ModelError, match="cut off"):
            pull(damaged)
    assert installed_names() == [] and leftovers() == []


def test_a_folder_with_only_the_older_tokenizer_files_gets_a_tokenizer_json(source: Path) -> None:
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    (source / "vocab.json").write_text(json.dumps(tokenizer["model"]["vocab"]))
    (source / "merges.txt").write_text("\n".join(" ".join(merge) for merge in tokenizer["model"]["merges"]))
    config = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "GPT2Tokenizer"}))
    (source / "tokenizer.json").unlink()
    folder = pull(source)
    assert json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"] == tokenizer["model"]["vocab"]


def test_a_folder_without_any_tokenizer_is_refused(source: Path) -> None:
    (source / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tiny has no tokenizer\.json and its tokenizer cannot be converted"):
        pull(source)
    assert installed_names() == [] and leftovers() == []


def test_a_second_pull_of_the_same_model_waits_for_nobody_and_says_so(gguf: Path) -> None:
    converting, go_on = threading.Event(), threading.Event()

    def hold(progress: Progress) -> None:
        if progress.stage == "converting":
            converting.set()
            go_on.wait()

    first = threading.Thread(target=pull, args=(gguf, hold))
    first.start()
    try:
        converting.wait()
        with pytest.raises(ModelError, match=r"Tiny\.Q4 is being pulled by another kvchat; wait until that is done"):
            pull(gguf)
    finally:
        go_on.set()
        first.join()
    validate(model_folder("Tiny.Q4"))
    assert leftovers() == []


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_pull_that_is_ended_leaves_nothing_that_the_next_does_not_clean(
    end: signal.Signals, gguf: Path, source: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PULL_AND_WAIT, gguf],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as ended:
        assert ended.stdout is not None
        assert ended.stdout.readline() == b"converting\n"
        ended.send_signal(end)
        ended.wait()
    assert installed_names() == []
    assert leftovers() == ([] if end == signal.SIGINT else ["Tiny.Q4.work"])
    pull(source)
    assert leftovers() == []
    validate(pull(gguf))


def test_a_disk_that_fills_up_on_the_way_is_one_line_and_leaves_nothing(gguf: Path) -> None:
    def limit_files_to_100_kb() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    pulled = subprocess.run(
        [sys.executable, "-c", PULL, gguf],
        capture_output=True,
        text=True,
        preexec_fn=limit_files_to_100_kb,
        check=False,
    )
    assert pulled.stderr == "the disk became full while pulling Tiny.Q4; nothing was installed\n"
    assert installed_names() == [] and leftovers() == []


def test_a_disk_without_room_is_noticed_before(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the disk is too full: 1,000,000,000,000 MB are needed, .* MB are free"):
        require_space(tmp_path, 10**18)


def test_a_models_folder_that_cannot_be_made_is_one_line(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"cannot pull Tiny\.Q4 into .*/file/models: .*Not a directory"):
        pull(gguf, into=tmp_path / "file" / "models")

"""Settings come from one TOML file; what is wrong in it is named by file, line, key and what was expected."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest
import tomli

import kvchat
from engine.api import SamplingParams
from engine.config import EngineConfig
from kvchat.config import Config, ConfigError, UiConfig, load_config
from kvchat.toml_file import parse_size

EXAMPLE = Path(kvchat.__file__).parents[1] / "config.example.toml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def refusal(file: Path, content: str | bytes) -> str:
    """What is said about a file of this content, without the file's name."""
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as error:
        load_config(file)
    message = str(error.value)
    assert message.startswith(str(file)) and "\n" not in message
    return message.removeprefix(str(file))


def test_without_a_file_all_settings_have_their_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_config() == Config()


def test_the_users_file_is_read_from_the_settings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "kvchat").mkdir()
    (tmp_path / "kvchat" / "config.toml").write_text('persona = "tutor"')
    assert load_config().persona == "tutor"


def test_a_file_that_was_asked_for_must_exist(file: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(file)
    assert str(error.value) == f"{file}: cannot be read: No such file or directory"


def test_settings_are_read(file: Path) -> None:
    file.write_text(
        """
        model = "~/models/llama"
        persona = "coder"
        [engine]
        device = "cpu"
        kv_memory = "512MiB"
        context_length = 4096
        prefix_caching = false
        [sampling]
        temperature = 0
        stop = ["END"]
        [ui]
        panel = "off"
        """
    )
    assert load_config(file) == Config(
        persona="coder",
        engine=EngineConfig(
            "~/models/llama", device="cpu", kv_memory=512 * 2**20, context_length=4096, prefix_caching=False
        ),
        sampling=SamplingParams(temperature=0, stop=("END",)),
        ui=UiConfig(panel="off"),
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("persona = 3", ":1: key 'persona': expected a string, got 3"),
        ("engine = 3", ":1: key 'engine': expected a table, got 3"),
        ('[engine]\nblock_size = "16"', ":2: key 'engine.block_size': expected an integer, got \"16\""),
        ("[engine]\nblock_size = true", ":2: key 'engine.block_size': expected an integer, got true"),
        ("[engine]\nthreads = 1.5", ":2: key 'engine.threads': expected an integer, got 1.5"),
        ("[engine]\nprefix_caching = 1", ":2: key 'engine.prefix_caching': expected true or false, got 1"),
        (
            '[engine]\ndtype = "int4"',
            ':2: key \'engine.dtype\': expected one of "auto", "float32", "bfloat16", "float16", got "int4"',
        ),
        (
            '[engine]\nkv_memory = "lots"',
            ':2: key \'engine.kv_memory\': expected a number of bytes or a size such as "512MiB", got "lots"',
        ),
        ("[sampling]\n\n  temperature = []", ":3: key 'sampling.temperature': expected a number, got a list"),
        ("[sampling]\nstop = 'x'", ":2: key 'sampling.stop': expected a list of strings, got \"x\""),
        ("[ui]\npanel = {}", ':2: key \'ui.panel\': expected one of "full", "compact", "off", got a table'),
        ("sampling.top_k = 1.5", ": key 'sampling.top_k': expected an integer, got 1.5"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(file: Path, content: str, problem: str) -> None:
    assert refusal(file, content) == problem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[engine]\nblock_size = 0", ":2: key 'engine.block_size': must be between 1 and 256 tokens, not 0"),
        ("[engine]\nkv_memory = 0", ":2: key 'engine.kv_memory': must be above 0 bytes, not 0"),
        ("[engine]\nmax_sequences = 0", ":2: key 'engine.max_sequences': must be 1 or more, not 0"),
        (f"[engine]\nkv_memory = {1 << 63}", ":2: key 'engine.kv_memory': is a number of more than 64 bits"),
        (f"[engine]\nkv_memory = '{'9' * 400}TiB'", ":2: key 'engine.kv_memory': is a number of more than 64 bits"),
        (f"[engine]\nmax_sequences = {'9' * 30}", ":2: key 'engine.max_sequences': is a number of more than 64 bits"),
        (f"[engine]\nthreads = {'9' * 30}", ":2: key 'engine.threads': is a number of more than 64 bits"),
        (f"[engine]\nthreads = {'9' * 5000}", ": not valid TOML: it holds a number with thousands of digits"),
        ("[sampling]\ntemperature = inf", ":2: key 'sampling.temperature': expected a finite number, got inf"),
        ("[sampling]\ntop_p = 1.5", ":2: key 'sampling.top_p': must be above 0 and at most 1, not 1.5"),
    ],
)
def test_a_value_out_of_range_is_refused(file: Path, content: str, problem: str) -> None:
    assert refusal(file, content) == problem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('modell = "x"', ":1: key 'modell': unknown, did you mean 'model'?"),
        ("\n[engin]\n", ":2: key 'engin': unknown, did you mean 'engine'?"),
        ("[engine]\ndevice = 'cpu'\nblocksize = 8", ":3: key 'engine.blocksize': unknown, did you mean 'block_size'?"),
        ("[ui]\nxyz = 1", ":2: key 'ui.xyz': unknown; known here: theme, panel"),
        ("[sampling]\nseed = 1", ":2: key 'sampling.seed': unknown; known here: "),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(file: Path, content: str, problem: str) -> None:
    assert refusal(file, content).startswith(problem)


def test_the_line_is_that_of_the_key_in_its_own_table(file: Path) -> None:
    content = "[sampling]\ntop_k = 1\n[ui]\n# top_k = 2\n'top_k' = 3"
    assert refusal(file, content).startswith(":5: key 'ui.top_k': unknown")


def test_a_syntax_error_is_located(file: Path) -> None:
    assert (
        refusal(file, '[engine]\ndevice "cpu"') == ":2:8: not valid TOML: expected '=' after a key in a key/value pair"
    )


@pytest.mark.parametrize("threads", [10_000, 99_999_999_999_999])
def test_more_threads_than_cores_are_refused(file: Path, threads: int) -> None:
    expected = f":2: key 'engine.threads': must be between 1 and {os.cpu_count()} here, not {threads}"
    assert refusal(file, f"[engine]\nthreads = {threads}") == expected


def test_a_byte_order_mark_is_no_part_of_the_text(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbfpersona = "tutor"')
    assert load_config(file).persona == "tutor"
    assert refusal(file, b'\xef\xbb\xbfpersona = "\xff"').startswith(":1:12: not valid UTF-8")


def test_invalid_utf8_is_located(file: Path) -> None:
    content = '# gr\u00fc\u00dfe\npersona = "'.encode() + b'\xff"'
    assert refusal(file, content) == ":2:12: not valid UTF-8: save the file as UTF-8"


@pytest.mark.parametrize(
    ("written", "size"),
    [("512MiB", 2**29), ("2GiB", 2**31), ("2 GB", 2 * 10**9), ("1.5kib", 1536), ("10b", 10), ("7", 7), (7, 7)],
)
def test_sizes_have_binary_and_decimal_units(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "MiB", "-1MiB", "1 XB", "1e3", "1MiB x", True, 1.5, None])
def test_other_sizes_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match='expected a number of bytes or a size such as "512MiB"'):
        parse_size(written)


def test_the_example_file_shows_the_defaults() -> None:
    assert load_config(EXAMPLE) == Config()


def test_the_example_file_shows_every_setting_and_explains_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = EXAMPLE.read_text().splitlines()
    optional = re.compile(r"# (\w+ = .+)")
    file.write_text("\n".join(match[1] if (match := optional.fullmatch(line)) else line for line in lines))
    load_config(file)
    shown = tomli.loads(file.read_text())

    def names(kind: type[msgspec.Struct]) -> set[str]:
        return set(kind.__struct_fields__)

    assert set(shown) == {"model", "persona", "profile", "engine", "sampling", "ui", "keys"}
    assert set(shown["engine"]) == names(EngineConfig) - {"model"}
    assert set(shown["sampling"]) == names(SamplingParams) - {"seed", "logit_bias", "ignore_eos"}
    assert set(shown["ui"]) == names(UiConfig)
    for above, line in zip(lines, lines[1:], strict=False):
        if re.match(r"(# )?\w+ = ", line):
            assert above.startswith("# "), f"nothing explains {line!r}"

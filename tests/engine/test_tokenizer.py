from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_tokenizers import CONTROLS, FAMILIES, SPECIAL, TAGS, make_folder
from tokenizers import AddedToken

from engine.errors import ModelError
from engine.tokenizer import Tokenizer

SCRAPS = [*CONTROLS, " ", "  ", "\n", "hello", " the world", "▁", "é", "e\u0301", "你好", "🙂", "<", "|im_end|>", "s>"]
TEXTS = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(SCRAPS), max_size=10).map("".join))


@pytest.fixture(scope="session", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(folder)


@pytest.fixture(scope="session")
def reference(folder: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@given(text=TEXTS)
def test_text_and_control_tokens_encode_as_the_library_encodes_them(
    tokenizer: Tokenizer, reference: tokenizers.Tokenizer, text: str
) -> None:
    assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids


@given(text=TEXTS)
def test_the_bytes_of_plain_ids_are_the_text(tokenizer: Tokenizer, text: str) -> None:
    canonical = tokenizer.canonical(text)
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode_plain(text))) == canonical.encode()


@given(text=TEXTS)
def test_the_bytes_of_ids_are_the_pieces(tokenizer: Tokenizer, text: str) -> None:
    text = tokenizer.canonical(text)
    spelled = "".join(piece.text for piece in tokenizer.split(text))
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == spelled.encode()


@given(text=TEXTS)
def test_plain_text_never_becomes_a_control_token(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.control_ids.isdisjoint(tokenizer.encode_plain(text))


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_token_alone_is_one_id_and_as_plain_text_several(tokenizer: Tokenizer, control: str) -> None:
    assert len(tokenizer.encode(control)) == 1
    assert len(tokenizer.encode_plain(control)) > 1


def test_text_in_the_middle_of_a_sequence_gets_no_leading_space(tokenizer: Tokenizer) -> None:
    assert tokenizer.text(tokenizer.encode_plain("hello")) == "hello"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(st.sampled_from(["<a>", "<b>", "<c>", " ", "\n ", "x", "_", "hello"]), max_size=10).map("".join))
def test_control_tokens_swallow_whitespace_as_their_flags_say(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    tokens = [
        AddedToken("<a>", special=True, rstrip=True),
        AddedToken("<b>", special=True, lstrip=True),
        AddedToken("<c>", special=True, single_word=True),
    ]
    folder = tmp_path_factory.getbasetemp() / "flags"
    if not folder.exists():
        make_folder(folder, "byte-level", tokens)
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert Tokenizer(folder).encode(text) == reference.encode(text, add_special_tokens=False).ids


def test_added_tokens_of_whitespace_are_layout_and_not_control(tmp_path: Path) -> None:
    folder = make_folder(
        tmp_path, "byte-level", [AddedToken("\n\n", normalized=False), AddedToken("<s>", special=True)]
    )
    tokenizer = Tokenizer(folder)
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = reference.encode("hello\n\nworld\n").ids
    assert tokenizer.encode_plain("hello\n\nworld\n") == ids
    assert tokenizer.control_ids.isdisjoint(ids)
    assert tokenizer.text(ids) == "hello\n\nworld\n"


def test_plain_text_is_not_merged_into_a_control_token(tmp_path: Path) -> None:
    tokenizer = Tokenizer(make_folder(tmp_path, "byte-level", [AddedToken("he", special=True)]))
    assert tokenizer.encode("he") == [tokenizer.controls["he"]]
    assert tokenizer.controls["he"] not in tokenizer.encode_plain("he said hello")


def test_a_special_token_known_by_name_alone_is_a_control_token(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "metaspace-first", [], eos_token={"content": "</s>"})
    tokenizer = Tokenizer(folder)
    [eos] = tokenizer.encode("</s>")
    assert eos in tokenizer.eos_ids
    assert len(tokenizer.encode_plain("</s>")) > 1


def test_a_token_that_only_tokenizer_config_lists_is_a_control_token(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, added_tokens_decoder={"900": {"content": "<|end|>", "special": True}})
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode("<|end|>") == [900]
    assert tokenizer.vocab_size == 901


def test_end_tokens_come_from_all_three_files(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, eos_token="<|im_end|>")
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [8, 9]}))
    tokenizer = Tokenizer(folder)
    assert tokenizer.eos_ids == {7, 8, 9, *tokenizer.encode("<|im_end|>")}
    assert tokenizer.eos_ids < tokenizer.special_ids


def test_special_tokens_are_hidden_and_tags_are_shown(tokenizer: Tokenizer) -> None:
    assert {tokenizer.controls[text] for text in SPECIAL} == tokenizer.special_ids
    assert {tokenizer.controls[text] for text in TAGS}.isdisjoint(tokenizer.special_ids)


def test_special_tokens_map_fills_what_tokenizer_config_leaves_out(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, add_bos_token=True, pad_token=None)
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"bos_token": "<unk>", "unk_token": {"content": "<unk>", "lstrip": False}})
    )
    assert Tokenizer(folder).special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def test_the_chat_template_is_a_string_a_list_with_names_or_a_file(tmp_path: Path) -> None:
    assert Tokenizer(make_folder(tmp_path / "none")).chat_template is None
    assert Tokenizer(make_folder(tmp_path / "string", chat_template="one")).chat_template == "one"
    named = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]
    folder = make_folder(tmp_path / "list", chat_template=named)
    assert Tokenizer(folder).chat_template == "three"
    (folder / "chat_template.jinja").write_text("four")
    assert Tokenizer(folder).chat_template == "four"


def test_an_id_without_a_token_spells_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.vocab_size + 5) == b""


def _truncate(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-20] if path.exists() else b"{")

    return damage


def _rewrite(name: str, **fields: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | fields))

    return damage


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tokenizer.json", lambda folder: (folder / "tokenizer.json").unlink()),
        ("tokenizer.json", _truncate("tokenizer.json")),
        ("tokenizer.json", _rewrite("tokenizer.json", model={"type": "BPE"})),
        (
            "tokenizer.json",
            _rewrite("tokenizer.json", model={"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}),
        ),
        ("tokenizer.json", _rewrite("tokenizer.json", pre_tokenizer={"type": "Whitespace"}, decoder=None)),
        ("tokenizer.json", _rewrite("tokenizer.json", pre_tokenizer={"kind": "ByteLevel"})),
        ("tokenizer_config.json", _truncate("tokenizer_config.json")),
        ("tokenizer_config.json", _rewrite("tokenizer_config.json", added_tokens_decoder={"x": {}})),
        ("tokenizer_config.json", _rewrite("tokenizer_config.json", chat_template=[{"name": "default"}])),
        ("special_tokens_map.json", _truncate("special_tokens_map.json")),
        ("generation_config.json", _rewrite("generation_config.json", eos_token_id="</s>")),
        ("config.json", _truncate("config.json")),
    ],
)
def test_a_missing_or_damaged_file_is_one_line_that_names_it(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(make_folder(tmp_path))
    with pytest.raises(ModelError) as error:
        Tokenizer(tmp_path)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_reading_a_tokenizer_imports_neither_torch_nor_transformers() -> None:
    code = "import sys, engine.prompt; sys.exit(not {'torch', 'transformers'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.model
def test_the_default_models_tokenizer_is_read_exactly(model_folder: Path) -> None:
    tokenizer = Tokenizer(model_folder)
    reference = tokenizers.Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    text = "".join(topics.values())[:100_000] + "<|im_start|>user\nhi<|im_end|>\n 你好 🙂"
    ids = reference.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text) == ids
    assert tokenizer.text(ids) == text
    assert tokenizer.controls["<|im_end|>"] in tokenizer.eos_ids
    assert tokenizer.vocab_size == 49152

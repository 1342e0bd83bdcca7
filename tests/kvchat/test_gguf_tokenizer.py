"""A tokenizer taken from a GGUF file gives the ids of the tokenizer it was made from."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from gguf import TokenType
from gguf_maker import ALPHABET, MERGES, SPECIALS, TinyGGUF, sentencepiece_metadata
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoTokenizer

from engine.errors import ModelError
from kvchat.catalogue.gguf import convert
from kvchat.catalogue.progress import silent

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
WRITTEN_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Co", "Cn"]), max_size=60)
"""No control or unassigned characters: the default model has no tokens for some bytes that only those need."""


def converted(tiny: TinyGGUF, folder: Path) -> Path:
    tiny.write(folder / "tiny.gguf")
    convert(folder / "tiny.gguf", folder, silent)
    return folder


def words(rule: str, text: str, tmp_path: Path) -> list[str]:
    """How a rule cuts a text, as text again."""
    tokenizer = Tokenizer.from_file(str(converted(with_rule(rule), tmp_path) / "tokenizer.json"))
    return [text[start:end] for _, (start, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def with_rule(rule: str | None) -> TinyGGUF:
    return TinyGGUF(metadata={"tokenizer.ggml.pre": rule})


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("gpt-2", "it's 12345 x", ["it", "'s", " 12345", " x"]),
        ("smollm", "it's 12345 x", ["it", "'s", " ", "1", "2", "3", "4", "5", " x"]),
        ("llama-bpe", "IT'S 12345 x", ["IT", "'S", " ", "123", "45", " x"]),
        ("qwen2", "IT'S 12345 x", ["IT", "'S", " ", "1", "2", "3", "4", "5", " x"]),
        ("tekken", "camelCase 12", ["camel", "Case", " ", "1", "2"]),
        ("gpt-2", "a \n\n b", ["a", " \n\n", " b"]),
        ("llama-bpe", "a \n\n b", ["a", " \n\n", " b"]),
        ("llama-bpe", "(x);\n\ty", ["(x", ");\n", "\ty"]),
        ("gpt-2", "(x);\n\ty", ["(", "x", ");", "\n", "\t", "y"]),
    ],
)
def test_each_rule_cuts_words_its_own_way(rule: str, text: str, expected: list[str], tmp_path: Path) -> None:
    assert words(rule, text, tmp_path) == expected


@pytest.mark.parametrize("rule", ["default", "some-new-rule", None])
def test_an_unknown_rule_is_refused_rather_than_guessed(rule: str | None, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"cuts words by the rule {rule!r}; known rules are gpt-2, smollm"):
        converted(with_rule(rule), tmp_path)


def test_llama3_takes_a_word_that_is_a_token_whole(tmp_path: Path) -> None:
    tokens = [*SPECIALS, *ALPHABET, *(merge.replace(" ", "") for merge in MERGES), "unmergeable"]
    tiny = TinyGGUF(
        metadata={
            "tokenizer.ggml.pre": "llama-bpe",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [int(SPECIALS.get(token, TokenType.NORMAL)) for token in tokens],
        }
    )
    tokenizer = Tokenizer.from_file(str(converted(tiny, tmp_path) / "tokenizer.json"))
    assert tokenizer.encode("unmergeable", add_special_tokens=False).tokens == ["unmergeable"]


@pytest.mark.parametrize(
    ("rule", "said", "begins"),
    [("smollm", None, False), ("smollm", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_a_text_begins_with_bos_where_the_file_or_its_family_says_so(
    rule: str, said: bool | None, begins: bool, tmp_path: Path
) -> None:
    tiny = TinyGGUF(metadata={"tokenizer.ggml.pre": rule, "tokenizer.ggml.add_bos_token": said})
    tokenizer = Tokenizer.from_file(str(converted(tiny, tmp_path) / "tokenizer.json"))
    assert (tokenizer.encode("x").ids[0] == 1) is begins


def test_control_tokens_are_special_and_user_defined_ones_are_not(tmp_path: Path) -> None:
    tokens = [*SPECIALS, *ALPHABET, *(merge.replace(" ", "") for merge in MERGES), "<think>", "[UNUSED7]"]
    types = {**SPECIALS, "<think>": TokenType.USER_DEFINED, "[UNUSED7]": TokenType.UNUSED}
    tiny = TinyGGUF(
        metadata={
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [int(types.get(token, TokenType.NORMAL)) for token in tokens],
        }
    )
    tokenizer = Tokenizer.from_file(str(converted(tiny, tmp_path) / "tokenizer.json"))
    think = tokens.index("<think>")
    assert tokenizer.encode("<|im_start|><think>").ids == [1, think]
    assert tokenizer.decode([1, think, 2]) == "<think>"
    assert tokenizer.token_to_id("[UNUSED7]") is None

    tokenizer.encode_special_tokens = True
    typed = tokenizer.encode("<|im_start|>").ids
    assert 1 not in typed and tokenizer.decode(typed) == "<|im_start|>"


@pytest.mark.parametrize(("architecture", "rule"), [("llama", "llama-bpe"), ("qwen2", "qwen2"), ("qwen3", "qwen2")])
def test_transformers_reads_the_tokenizer_as_it_was_written(architecture: str, rule: str, tmp_path: Path) -> None:
    tiny = TinyGGUF(architecture, metadata={"tokenizer.ggml.pre": rule})
    folder = converted(tiny, tmp_path)
    theirs = AutoTokenizer.from_pretrained(folder)
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("it's the 12345\n\n  the", "Cafe\u0301 <|im_start|> THE"):
        assert theirs.encode(text) == ours.encode(text).ids
    assert theirs.eos_token == "<|im_end|>" and theirs.bos_token == "<|im_start|>"
    message = [{"role": "user", "content": "hi"}]
    assert theirs.apply_chat_template(message, tokenize=False) == "<|im_start|>user\nhi<|im_end|>\n"


PIECES = ["▁", *"abcdeé", "ab", "▁a", "cd", "▁ab", "bc", "abcd", "▁abcd", "de", "dé"]
SCORES = {piece: -float(rank) for rank, piece in enumerate(PIECES)}


def best_joint_first(text: str) -> list[str]:
    """SentencePiece's own way: join the neighbours whose joint piece scores best, leftmost first, while any do."""
    parts = list("▁" + text.replace(" ", "▁"))
    while joints := [
        (-SCORES[parts[i] + parts[i + 1]], i) for i in range(len(parts) - 1) if parts[i] + parts[i + 1] in SCORES
    ]:
        _, i = min(joints)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    spelled = ([part] if part in SCORES else [f"<0x{byte:02X}>" for byte in part.encode()] for part in parts)
    return [token for tokens in spelled for token in tokens]


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("sentencepiece")
    converted(TinyGGUF(metadata=sentencepiece_metadata(SCORES)), folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer


@given(text=st.text("abcdeé 你\n", min_size=1, max_size=30))
def test_sentencepiece_merges_follow_the_scores(text: str, sentencepiece: Tokenizer) -> None:
    assert sentencepiece.encode(text, add_special_tokens=False).tokens == best_joint_first(text)


@given(text=ANY_TEXT.filter(lambda text: "▁" not in text))
def test_sentencepiece_decodes_to_the_text_that_went_in(text: str, sentencepiece: Tokenizer) -> None:
    encoded = sentencepiece.encode(text)
    assert encoded.ids[0] == 1
    assert sentencepiece.decode(encoded.ids) == text


def test_sentencepiece_never_makes_a_control_or_byte_token_of_ordinary_text(sentencepiece: Tokenizer) -> None:
    tokens = sentencepiece.encode("</s><0x41>", add_special_tokens=False).tokens
    assert "</s>" not in tokens and "<0x41>" not in tokens


@pytest.fixture(scope="module")
def default_tokenizer(model_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def official_tokenizer(model_folder: Path) -> Tokenizer:
    """The default model's tokenizer with the pre-tokenizer that its makers published."""
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    digits, to_bytes = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, to_bytes])
    return tokenizer


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(text=ANY_TEXT)
def test_the_default_models_tokenizer_is_the_one_its_makers_published(
    text: str, default_tokenizer: Tokenizer, official_tokenizer: Tokenizer
) -> None:
    assert default_tokenizer.encode(text).ids == official_tokenizer.encode(text).ids


def test_a_long_file_tokenizes_as_its_makers_published(
    default_tokenizer: Tokenizer, official_tokenizer: Tokenizer
) -> None:
    source = inspect.getsource(inspect)
    assert default_tokenizer.encode(source).ids == official_tokenizer.encode(source).ids


@settings(deadline=None)
@given(text=WRITTEN_TEXT)
def test_the_default_models_tokenizer_decodes_to_the_text_that_went_in(text: str, default_tokenizer: Tokenizer) -> None:
    assert default_tokenizer.decode(default_tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_the_default_models_control_tokens_and_template_come_along(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, return_dict=True
    )["input_ids"]
    assert tokenizer.decode(ids).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert ids[0] == 1
    config = json.loads((model_folder / "tokenizer_config.json").read_text())
    assert config["eos_token"] == "<|im_end|>" and config["model_max_length"] == 8192

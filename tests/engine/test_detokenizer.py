from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from small_tokenizers import FAMILIES, make_folder

from engine.detokenizer import Detokenizer
from engine.tokenizer import Tokenizer

TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from([" ", "hello", " world", "你好", "🙂", "👨‍👩‍👧", "é", "\n", "<think>"]), max_size=8).map(
        "".join
    ),
)


@pytest.fixture(scope="session", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(folder)


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(make_folder(tmp_path_factory.mktemp("byte-level")))


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One token for each byte."""
    spelled = {tokenizer.token_bytes(i): i for i in reversed(range(tokenizer.vocab_size))}
    return [spelled[bytes([byte])] for byte in data]


def stream(tokenizer: Tokenizer, ids: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], Detokenizer]:
    """The deltas that a request would send, the last one from `finish`."""
    detokenizer = Detokenizer(tokenizer, stop)
    deltas = []
    for token_id in ids:
        deltas.append(detokenizer.push(token_id))
        if detokenizer.stopped:
            break
    return [*deltas, detokenizer.finish()], detokenizer


@given(text=TEXTS)
def test_streamed_text_is_what_the_library_decodes(tokenizer: Tokenizer, folder: Path, text: str) -> None:
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(text)
    deltas, detokenizer = stream(tokenizer, ids)
    assert "".join(deltas) == detokenizer.text == reference.decode(ids, skip_special_tokens=True)


@given(text=TEXTS)
def test_any_cut_of_a_text_into_bytes_streams_it_whole(byte_tokenizer: Tokenizer, text: str) -> None:
    deltas, detokenizer = stream(byte_tokenizer, byte_ids(byte_tokenizer, text.encode()))
    assert "".join(deltas) == detokenizer.text == text
    assert all(len(delta) <= 1 for delta in deltas)
    assert ("\ufffd" in detokenizer.text) == ("\ufffd" in text)


@given(data=st.binary(max_size=12))
@example(b"\xf0\x9f\x99")
@example(b"\xf0\x9f\xf0\x9f\x99\x82\x82a")
def test_bytes_that_are_no_text_are_replaced_as_python_replaces_them(byte_tokenizer: Tokenizer, data: bytes) -> None:
    deltas, _ = stream(byte_tokenizer, byte_ids(byte_tokenizer, data))
    assert "".join(deltas) == data.decode("utf-8", "replace")


def test_a_character_is_held_back_until_its_last_byte(byte_tokenizer: Tokenizer) -> None:
    deltas, _ = stream(byte_tokenizer, byte_ids(byte_tokenizer, "a🙂".encode()))
    assert deltas == ["a", "", "", "", "🙂", ""]


def test_an_unfinished_character_is_replaced_only_at_the_end(byte_tokenizer: Tokenizer) -> None:
    deltas, _ = stream(byte_tokenizer, byte_ids(byte_tokenizer, "a🙂".encode()[:-1]))
    assert deltas == ["a", "", "", "", "\ufffd"]


def test_special_tokens_are_silent_and_tags_are_shown(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<s><think>") + tokenizer.encode_plain("well") + tokenizer.encode("</think><|im_end|></s>")
    assert "".join(stream(tokenizer, ids)[0]) == "<think>well</think>"


def test_an_end_token_that_is_an_ordinary_token_is_silent(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    [end] = Tokenizer(folder).encode("q")
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {end}}}')
    assert "".join(stream(Tokenizer(folder), [end])[0]) == ""


@pytest.mark.parametrize("text", ["hello", " hello", "  hello"])
def test_only_the_space_that_the_tokenizer_wrote_is_dropped(tokenizer: Tokenizer, text: str) -> None:
    [piece] = tokenizer.split(text)
    spelled = [tokenizer.vocab_size + 1, *tokenizer.encode_plain(piece.text)]  # an id without text changes nothing
    expected = piece.text.removeprefix(" ") if tokenizer.leading_space else text
    assert "".join(stream(tokenizer, spelled)[0]) == expected


def cut(text: str, stops: tuple[str, ...]) -> str:
    """The text before the stop string that is complete first."""
    matches = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(matches)[1]] if matches else text


@given(
    text=st.text("ab🙂", max_size=12),
    stops=st.lists(st.text("ab🙂", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple),
    data=st.data(),
)
@example("aab", ("ab",), None)
@example("abab🙂", ("abab🙂", "b"), None)
def test_stop_strings_cut_the_text_where_the_first_is_complete(
    byte_tokenizer: Tokenizer, text: str, stops: tuple[str, ...], data: st.DataObject | None
) -> None:
    ids = byte_tokenizer.encode_plain(text)
    if data is None or data.draw(st.booleans()):
        ids = byte_ids(byte_tokenizer, text.encode())
    deltas, detokenizer = stream(byte_tokenizer, ids, stops)
    assert "".join(deltas) == detokenizer.text == cut(text, stops)
    assert detokenizer.stopped == any(stop in text for stop in stops)


@given(text=st.text("ab", max_size=12), stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_only_what_could_still_become_a_stop_string_is_held_back(
    byte_tokenizer: Tokenizer, text: str, stops: list[str]
) -> None:
    detokenizer = Detokenizer(byte_tokenizer, stops)
    for n, token_id in enumerate(byte_ids(byte_tokenizer, text.encode()), 1):
        detokenizer.push(token_id)
        if detokenizer.stopped:
            break
        held = text[:n].removeprefix(detokenizer.text)
        possible = [text[:n][i:] for i in range(n) if any(stop.startswith(text[:n][i:]) for stop in stops)]
        assert held == max(possible, key=len, default="")


def test_a_stop_string_split_over_tokens_never_leaks(byte_tokenizer: Tokenizer) -> None:
    deltas, detokenizer = stream(byte_tokenizer, byte_ids(byte_tokenizer, b"hi</end>tail"), ("</end>",))
    assert [delta for delta in deltas if delta] == ["h", "i"]
    assert detokenizer.stopped


def test_text_behind_a_stop_string_in_the_same_token_is_dropped(byte_tokenizer: Tokenizer) -> None:
    [the] = byte_tokenizer.encode_plain(" the")
    deltas, _ = stream(byte_tokenizer, [the], ("t",))
    assert deltas == [" ", ""]


def test_where_stop_strings_cut_does_not_depend_on_the_tokens(byte_tokenizer: Tokenizer) -> None:
    stops = (" the", "h")
    [the] = byte_tokenizer.encode_plain(" the")
    for ids in ([the], byte_ids(byte_tokenizer, b" the")):
        assert "".join(stream(byte_tokenizer, ids, stops)[0]) == cut(" the", stops) == " t"


def test_a_beginning_of_a_stop_string_that_ends_the_reply_is_shown(byte_tokenizer: Tokenizer) -> None:
    deltas, detokenizer = stream(byte_tokenizer, byte_ids(byte_tokenizer, b"hi</en"), ("</end>",))
    assert deltas[-1] == "</en"
    assert not detokenizer.stopped


@pytest.mark.model
def test_the_default_models_text_streams_whole(model_folder: Path) -> None:
    tokenizer = Tokenizer(model_folder)
    text = "def f():\n    return '你好 🙂 naïve'  # 👨‍👩‍👧\n"
    assert "".join(stream(tokenizer, [*tokenizer.encode(text), *tokenizer.eos_ids])[0]) == text

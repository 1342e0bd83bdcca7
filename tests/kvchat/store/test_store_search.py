"""Search finds words in titles and messages, and takes nothing that a user types for syntax."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvchat.store import SearchHit, Store, StoreError
from kvchat.store.database import Database


def conversation_with(store: Store, *texts: str, title: str = "") -> str:
    conversation_id = store.create_conversation(title=title).id
    parent = None
    for text in texts:
        parent = store.append_message(conversation_id, parent, "user", text).id
    return conversation_id


def found_texts(store: Store, query: str) -> list[str]:
    return [hit.message.text if hit.message else hit.conversation.title for hit in store.search(query)]


def check_indexes(path: Path) -> None:
    """Compare the full-text indexes with the text they stand for. Raises StoreError."""
    database = Database(path)
    try:
        with database.transaction() as connection:
            for index in ("message_index", "title_index"):
                connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
    finally:
        database.close()


def highlighted(hit: SearchHit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.spans]


@pytest.mark.parametrize("query", ["paged attention", "attention PAGED", "paged atten", "a"])
def test_all_words_must_occur_and_the_last_may_be_unfinished(store: Store, query: str) -> None:
    conversation_with(store, "How does paged attention work?", "Only pages here")
    assert found_texts(store, query) == ["How does paged attention work?"]


def test_only_the_last_word_may_be_unfinished(store: Store) -> None:
    conversation_with(store, "paged attention")
    assert found_texts(store, "pag attention") == []


def test_a_hit_has_the_conversation_the_message_and_the_part_of_the_text_around_it(store: Store) -> None:
    long_text = "before " * 200 + "the needle lies here " + "after " * 200
    conversation_id = conversation_with(store, "first", long_text, title="Haystack")
    [hit] = store.search("needle")
    assert hit.conversation == store.conversation(conversation_id)
    assert hit.message == store.path(conversation_id)[1]
    assert len(hit.snippet) < 200
    assert highlighted(hit) == ["needle"]


def test_titles_come_before_messages(store: Store) -> None:
    conversation_with(store, "about python", title="Snakes")
    conversation_with(store, "nothing", title="Python")
    hits = store.search("python")
    assert [(hit.conversation.title, hit.message is None) for hit in hits] == [("Python", True), ("Snakes", False)]
    assert [highlighted(hit) for hit in hits] == [["Python"], ["python"]]


def test_the_newest_message_comes_first(store: Store) -> None:
    conversation_with(store, "python one", "two", "python three")
    conversation_with(store, "python four, python five, python six")
    expected = ["python four, python five, python six", "python three", "python one"]
    assert found_texts(store, "python") == expected


def test_accents_and_case_do_not_matter(store: Store) -> None:
    conversation_with(store, "Das Café in ÜBERLINGEN")
    [hit] = store.search("cafe überlingen")
    assert highlighted(hit) == ["Café", "ÜBERLINGEN"]


@pytest.mark.parametrize("query", ["缓存", "擎", "推理引擎", "KV 缓存", "KV缓存"])
def test_scripts_without_spaces_are_found_in_the_middle_of_a_sentence(store: Store, query: str) -> None:
    text = "推理引擎为什么需要KV缓存？"
    conversation_with(store, text, "存缓")
    [hit] = store.search(query)
    assert hit.message is not None and hit.message.text == text
    assert hit.snippet == text


def test_the_index_follows_updates_and_deletions(store: Store) -> None:
    conversation_id = conversation_with(store, "apples", title="fruit")
    [message] = store.path(conversation_id)
    store.update_message(message.id, text="pears")
    store.update_conversation(conversation_id, title="trees")
    assert [found_texts(store, word) for word in ("apples", "pears", "fruit", "trees")] == [
        [],
        ["pears"],
        [],
        ["trees"],
    ]
    store.delete_conversation(conversation_id)
    assert [found_texts(store, word) for word in ("pears", "trees")] == [[], []]


def test_the_index_agrees_with_the_text_after_many_changes(path: Path, store: Store) -> None:
    conversation_id = conversation_with(store, *(f"text {number} 缓存" for number in range(20)), title="会话 one")
    for message in store.path(conversation_id)[::2]:
        store.update_message(message.id, text=f"changed {message.id}")
    store.update_conversation(conversation_id, title="two")
    store.delete_conversation(conversation_with(store, "gone"))
    check_indexes(path)


def test_the_check_of_the_index_notices_a_stale_one(path: Path, store: Store) -> None:
    conversation_with(store, "apples")
    database = Database(path)
    with database.transaction() as connection:
        connection.execute("DROP TRIGGER message_changed")
        connection.execute("UPDATE messages SET text = 'pears'")
    database.close()
    with pytest.raises(StoreError, match="damaged"):
        check_indexes(path)


@pytest.mark.parametrize(
    "query", ['"', '"hello', "hello*", "(hello", "text:hello", "hello -", "^hello", "{hello}", "*"]
)
def test_query_syntax_is_ordinary_text(store: Store, query: str) -> None:
    conversation_with(store, "hello world")
    assert found_texts(store, query) in (["hello world"], [])


@pytest.mark.parametrize("query", ["hello NOT world", "hello OR moon", "hello NEAR moon"])
def test_operators_are_ordinary_words(store: Store, query: str) -> None:
    conversation_with(store, "hello world")
    assert found_texts(store, query) == []


@pytest.mark.parametrize("query", ["", "   ", "?!", "\0"])
def test_a_query_without_words_finds_nothing(store: Store, query: str) -> None:
    conversation_with(store, "hello ?! world", title="?!")
    assert store.search(query) == []


@given(query=st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_query_is_an_error(store: Store, query: str) -> None:
    store.search(query)


def test_the_limit_counts_titles_and_messages_together(store: Store) -> None:
    for number in range(4):
        conversation_with(store, f"python {number}", title=f"python {number}")
    assert [len(store.search("python", limit=limit)) for limit in (3, 6, 50)] == [3, 6, 8]


def test_a_tag_narrows_what_is_found(store: Store) -> None:
    work, home, none = (conversation_with(store, f"the {name} budget", title=name) for name in ("one", "two", "three"))
    store.update_conversation(work, tags=["work", "draft"])
    store.update_conversation(home, tags=["home"])
    assert store.tags() == ["draft", "home", "work"]

    def found(query: str) -> list[str]:
        return [hit.conversation.id for hit in store.search(query)]

    assert found("budget") == [none, home, work]
    assert found("#work budget") == found("budget #Wo") == [work]
    assert found("#work #draft") == [work]
    assert found("#work #home") == []
    assert found("#home") == [home]
    assert [hit.snippet for hit in store.search("#home")] == ["two"]
    assert found("#") == []


def test_what_only_looks_like_a_tag_is_a_word(store: Store) -> None:
    include = conversation_with(store, "What does #include mean?")
    store.update_conversation(include, tags=["c"])
    assert found_texts(store, "#include") == ["What does #include mean?"]
    assert found_texts(store, "#_") == []

"""What a conversation does with what the user writes and the engine answers; store and database are the real ones."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opened_conversation import MODEL, Opened
from tui.scripted_client import ScriptedClient

from engine.api import Divergence, Finished, Metrics, SamplingParams, TokenDelta
from kvchat.conversation import ConversationController, title_of
from kvchat.store import Store


def path_ids(store: Store, controller: ConversationController) -> tuple[int, ...]:
    return tuple(token for message in store.path(controller.id) for token in message.token_ids)


def test_a_message_is_committed_before_the_engine_is_asked(store: Store) -> None:
    stored_at_submission: list[tuple[str, str]] = []

    class Watching(ScriptedClient):
        def submit(self, request):
            stored_at_submission.extend((message.role, message.status) for message in store.path(request.owner))
            return super().submit(request)

    Opened(store, Watching()).controller.send("Hello")
    assert stored_at_submission == [("user", "complete"), ("assistant", "streaming")]


def test_a_request_carries_the_conversation(opened: Opened) -> None:
    store, client = opened.store, opened.client
    conversation = store.create_conversation(
        system_prompt="Be brief.", model=MODEL, sampling=SamplingParams(temperature=0.2)
    )
    controller = opened.open(conversation.id)
    controller.visible = True
    controller.send("Hello")
    request = client.requests["r1"]
    assert [(message.role, message.text) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "Hello"),
    ]
    assert (request.owner, request.priority, request.sampling.temperature) == (conversation.id, 1, 0.2)


def test_a_finished_reply_is_stored_with_its_ids_and_metrics(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.reply("r1", "Good day to you")
    [_, reply] = opened.store.path(opened.controller.id)
    assert (reply.text, reply.status, reply.finish_reason) == ("Good day to you", "complete", "stop")
    assert len(reply.token_ids) == 4
    assert reply.metrics is not None and reply.metrics.completion_tokens == 4
    assert opened.controller.reply is None


def test_the_text_of_the_end_wins_over_the_deltas(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.accept("r1")
    opened.client.emit(TokenDelta("r1", "Hi EN", (1, 2)), Finished("r1", "stop", "Hi", (1, 2, 3), Metrics()))
    [_, reply] = opened.store.path(opened.controller.id)
    assert (reply.text, reply.token_ids) == ("Hi", (1, 2, 3))


def test_the_ids_along_the_path_are_what_the_engine_was_fed_and_produced(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    for turn, text in enumerate(("one two three", "four", "five six"), 1):
        controller.send(text)
        client.reply(f"r{turn}", "and so on")
        assert path_ids(opened.store, controller)[:-3] == client.fed[f"r{turn}"]


def test_the_ids_stay_exact_when_a_reply_was_stopped(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("one two")
    client.accept("r1")
    client.say("r1", "half a")
    controller.stop()
    client.finish("r1", "aborted")
    controller.send("three")
    client.accept("r2")
    assert path_ids(opened.store, controller) == client.fed["r2"]


@pytest.mark.parametrize("token_index", range(0, 11))
def test_after_a_divergence_the_ids_along_the_path_are_again_what_the_engine_was_fed(
    opened: Opened, token_index: int
) -> None:
    controller, client = opened.controller, opened.client
    controller.send("one two three")
    client.reply("r1", "four five")
    controller.send("six")
    client.reply("r2", "seven eight nine ten")
    known = len(path_ids(opened.store, controller))
    controller.send("eleven twelve")
    client.accept("r3", Divergence(token_index, "old", "new", "the template trimmed a message"))
    assert path_ids(opened.store, controller) == client.fed["r3"]
    assert controller.reply is not None and controller.reply.reread_tokens == known - token_index


def test_ids_of_another_models_tokenizer_are_not_sent(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.reply("r1", "Hi")
    controller = opened.open(opened.controller.id, model="another")
    controller.send("Again")
    assert [message.token_ids for message in opened.client.requests["r2"].messages] == [(), (), ()]
    opened.client.reply("r2", "Hi again")
    assert opened.store.conversation(controller.id).model == "another"
    assert opened.store.path(controller.id)[0].token_ids, "the old ids stay for the old model"


def test_a_running_reply_is_drafted_about_once_a_second(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("Hello")
    client.accept("r1")
    drafted = []
    for _ in range(25):
        opened.seconds += 0.125
        client.say("r1", "word ")
        drafted.append(opened.store.path(controller.id)[-1].text.count("word"))
    assert sorted(set(drafted)) == [0, 8, 16, 24]


def test_a_stopped_reply_keeps_what_arrived(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("Hello")
    client.accept("r1")
    client.say("r1", "Once upon")
    controller.stop()
    assert client.aborted == ["r1"]
    client.say("r1", " a time")  # produced before the engine heard of it
    client.finish("r1", "aborted")
    reply = opened.store.path(controller.id)[-1]
    assert (reply.text, reply.status, reply.finish_reason) == ("Once upon a time", "stopped", "aborted")


def test_a_request_the_engine_has_not_taken_yet_stops_at_once(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.controller.stop()
    assert opened.controller.reply is None
    assert opened.client.aborted == ["r1"]


def test_a_failed_reply_keeps_its_text_and_the_error(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.accept("r1")
    opened.client.say("r1", "Once")
    opened.client.die("the engine process was killed by SIGKILL")
    reply = opened.store.path(opened.controller.id)[-1]
    assert (reply.text, reply.status) == ("Once", "failed")
    assert reply.error == "the engine process was killed by SIGKILL"


def test_retrying_asks_again_and_keeps_the_old_reply_as_another_branch(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("Hello")
    client.accept("r1")
    client.say("r1", "Once")
    client.refuse("r1", "no")
    assert controller.can_retry
    controller.retry()
    client.reply("r2", "Better")
    [asked, reply] = opened.store.path(controller.id)
    assert reply.text == "Better"
    assert [each.text for each in opened.store.siblings(reply.id)] == ["Once", "Better"]
    assert (*asked.token_ids, *reply.token_ids) == (*client.fed["r2"], *reply.token_ids)


def test_a_complete_reply_is_not_asked_for_again(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.reply("r1", "Hi")
    opened.controller.retry()
    assert list(opened.client.requests) == ["r1"]


def test_a_message_without_a_reply_can_be_retried_after_a_crash(opened: Opened) -> None:
    opened.store.append_message(opened.controller.id, None, "user", "Hello")
    controller = opened.open(opened.controller.id)
    controller.retry()
    opened.client.reply("r1", "Hi")
    assert [message.text for message in controller.messages] == ["Hello", "Hi"]


def test_messages_written_while_a_reply_runs_are_sent_in_order_when_it_ends(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    for text in ("one", "two", "three"):
        controller.send(text)
    assert (controller.queued, list(client.requests)) == (["two", "three"], ["r1"])
    client.reply("r1", "first")
    assert controller.queued == ["three"]
    client.reply("r2", "second")
    client.reply("r3", "third")
    texts = [message.text for message in opened.store.path(controller.id)]
    assert texts == ["one", "first", "two", "second", "three", "third"]


def test_the_message_queued_last_can_be_taken_back(opened: Opened) -> None:
    for text in ("one", "two", "three"):
        opened.controller.send(text)
    assert opened.controller.unqueue() == "three"
    assert opened.controller.queued == ["two"]


def test_queued_messages_return_to_the_draft_when_the_reply_fails(opened: Opened) -> None:
    opened.controller.send("one")
    opened.controller.send("two")
    opened.controller.draft = "thr"
    opened.client.refuse("r1", "longer than the context")
    assert (opened.controller.queued, opened.controller.draft) == ([], "two\n\nthr")
    assert "draft" in opened.changes
    assert list(opened.client.requests) == ["r1"]


@pytest.mark.parametrize("retried", [False, True])
def test_a_message_that_can_never_be_answered_goes_back_to_the_composer(opened: Opened, retried: bool) -> None:
    controller, client = opened.controller, opened.client
    controller.send("one")
    client.reply("r1", "first")
    controller.send("too long")
    controller.send("queued")
    controller.draft = "typed"
    if retried:
        client.die()
        controller.retry()
    client.refuse(list(client.requests)[-1], "longer than the context", for_good=True)
    assert [message.text for message in controller.messages] == ["one", "first"]
    assert opened.store.path(controller.id) == controller.messages
    assert (controller.draft, controller.queued) == ("too long\n\nqueued\n\ntyped", [])
    assert opened.store.open_tabs()[0].draft == controller.draft
    assert (controller.refusal, opened.changes[-1]) == ("longer than the context", "refused")
    assert not controller.can_retry
    controller.send("short")
    assert [message.text for message in list(client.requests.values())[-1].messages] == ["one", "first", "short"]
    assert controller.refusal == ""


@pytest.mark.parametrize("retried", [False, True])
def test_a_message_that_can_never_be_answered_leaves_no_trace(opened: Opened, retried: bool) -> None:
    controller, client, store = opened.controller, opened.client, opened.store
    controller.send("one")
    client.reply("r1", "first")
    controller.send("two")
    client.reply("r2", "second")
    controller.delete(controller.messages[2].id)
    tree = store.tree(controller.id)
    controller.send("too long")
    if retried:
        client.die()
        controller.retry()
    client.refuse(list(client.requests)[-1], "longer than the context", for_good=True)
    assert store.tree(controller.id) == tree and store.search("long") == []
    controller.send("short")
    assert controller.place(controller.messages[2]) == (1, 1)
    controller.stop()
    controller.undelete()
    assert [message.text for message in controller.messages] == ["one", "first", "two", "second"]


def test_an_edit_that_can_never_be_answered_leaves_the_message_as_it_was(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("one")
    client.reply("r1", "first")
    before = list(controller.messages)
    controller.edit(before[0].id, "too long")
    client.refuse("r2", "longer than the context", for_good=True)
    assert controller.messages == before == opened.store.path(controller.id)
    assert (controller.draft, controller.place(before[0])) == ("too long", (1, 1))


def test_a_message_with_a_reply_stays_when_no_other_can_be_given(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("one")
    client.reply("r1", "first")
    before = list(controller.messages)
    controller.regenerate()
    client.refuse("r2", "longer than the context", for_good=True)
    assert controller.messages == before == opened.store.path(controller.id)
    assert (controller.draft, controller.refusal) == ("", "longer than the context")


def test_what_another_program_added_to_a_refused_message_stays(opened: Opened) -> None:
    controller, store = opened.controller, opened.store
    controller.send("too long")
    store.append_message(controller.id, controller.messages[-1].id, "user", "from elsewhere")
    opened.client.refuse("r1", "longer than the context", for_good=True)
    assert [message.text for message in store.path(controller.id)] == ["too long", "", "from elsewhere"]


def test_a_conversation_whose_first_message_can_never_be_answered_is_empty_again(opened: Opened) -> None:
    controller = opened.controller
    controller.send("too long")
    opened.client.refuse("r1", "longer than the context", for_good=True)
    assert (controller.messages, controller.title, controller.draft) == ([], "", "too long")
    assert opened.store.conversation(controller.id).leaf_id is None
    controller.send("short")
    opened.client.reply("r2", "Hi")
    assert [message.text for message in opened.store.path(controller.id)] == ["short", "Hi"]
    assert controller.title == "short"


def test_a_reply_with_text_is_not_taken_back(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.accept("r1")
    opened.client.say("r1", "Once")
    opened.client.refuse("r1", "too long by now", for_good=True)
    assert [message.text for message in opened.store.path(opened.controller.id)] == ["Hello", "Once"]


def test_queued_messages_and_the_draft_survive_a_crash(opened: Opened) -> None:
    opened.controller.send("one")
    opened.controller.draft = "thr"
    opened.controller.send("two")
    assert [tab.draft for tab in opened.store.open_tabs()] == ["two\n\nthr"]


def test_a_message_that_begins_with_a_slash_comes_back_as_it_was_written(opened: Opened) -> None:
    """With two: with one it would be a command."""
    opened.controller.send("one")
    opened.controller.send("/etc/hosts?")
    assert [tab.draft for tab in opened.store.open_tabs()] == ["//etc/hosts?"]
    opened.client.refuse("r1", "longer than the context")
    assert opened.controller.draft == "//etc/hosts?"


def test_closing_stops_the_reply_without_waiting_for_the_engine(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.controller.send("queued")
    opened.client.accept("r1")
    opened.client.say("r1", "Once")
    opened.controller.close()
    reply = opened.store.path(opened.controller.id)[-1]
    assert (reply.text, reply.status) == ("Once", "stopped")
    assert list(opened.client.requests) == ["r1"]


def test_events_of_other_requests_change_nothing(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.accept("r1")
    before = list(opened.changes)
    opened.client.emit(TokenDelta("r7", "stray", (1,)), Finished("r7", "stop", "stray", (1,), Metrics()))
    assert opened.changes == before
    assert opened.controller.reply is not None and opened.controller.reply.text == ""


def test_the_first_message_gives_the_title_until_the_user_does(opened: Opened) -> None:
    controller = opened.controller
    controller.send("\n  What is   paged attention?\nExplain.")
    assert controller.title == "What is paged attention?"
    controller.rename("Paging")
    opened.client.reply("r1", "It is")
    controller.send("And more")
    assert opened.store.conversation(controller.id).title == "Paging"
    controller.rename("")
    assert opened.store.conversation(controller.id).title == "What is paged attention?"


def test_a_long_title_is_cut_at_a_word() -> None:
    title = title_of("a rather long first line that goes on, and on, and on until it is cut")
    assert title == "a rather long first line that goes on, and on…"
    assert title_of("x" * 100) == "x" * 47 + "…"


def test_the_context_counts_what_is_fed_and_produced(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("one two three")
    client.accept("r1")
    client.say("r1", "four five")
    assert controller.context_tokens == 5
    client.finish("r1")
    assert controller.context_tokens == 5


def test_a_hidden_conversation_is_unread_when_its_reply_ends(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.reply("r1", "Hi")
    assert opened.controller.unread
    opened.controller.visible = True
    opened.controller.send("Hello")
    opened.client.reply("r2", "Hi")
    assert not opened.controller.unread


def test_the_controller_knows_no_widget_and_no_torch() -> None:
    program = "import sys, kvchat.conversation; sys.exit(bool({'textual', 'torch'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

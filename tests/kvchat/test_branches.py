"""Several replies to one message, and the way between them."""

from __future__ import annotations

import pytest
from opened_conversation import Opened


def texts(opened: Opened) -> list[str]:
    return [message.text for message in opened.controller.messages]


@pytest.fixture
def branched(opened: Opened) -> Opened:
    """One question with two complete replies, the second shown."""
    opened.controller.send("Hello")
    opened.client.reply("r1", "first reply")
    opened.controller.regenerate()
    opened.client.reply("r2", "second")
    return opened


def test_a_complete_reply_is_regenerated_beside_the_old_one(branched: Opened) -> None:
    asked = branched.controller.messages[0]
    assert texts(branched) == ["Hello", "second"]
    assert [each.text for each in branched.store.children(asked.id, branched.controller.id)] == [
        "first reply",
        "second",
    ]
    assert branched.client.requests["r2"].messages[0].token_ids == asked.token_ids
    assert branched.controller.place(branched.controller.messages[-1]) == (2, 2)


def test_stepping_shows_the_other_branch_and_wraps_around(branched: Opened) -> None:
    branched.controller.step_branch(-1)
    assert texts(branched) == ["Hello", "first reply"] and branched.controller.place(
        branched.controller.messages[-1]
    ) == (1, 2)
    branched.controller.step_branch(-1)
    assert texts(branched) == ["Hello", "second"]


def test_a_branch_is_shown_again_to_its_end(branched: Opened) -> None:
    branched.controller.send("Go on")
    branched.client.reply("r3", "third")
    branched.controller.step_branch(-1)
    branched.controller.step_branch(1)
    assert texts(branched) == ["Hello", "second", "Go on", "third"]


def test_what_is_sent_continues_the_branch_that_is_shown(branched: Opened) -> None:
    branched.controller.step_branch(-1)
    branched.controller.send("Go on")
    assert [each.text for each in branched.client.requests["r3"].messages] == ["Hello", "first reply", "Go on"]


def test_the_branch_that_was_shown_comes_back(branched: Opened) -> None:
    branched.controller.step_branch(-1)
    again = branched.open(branched.controller.id)
    assert again.place(again.messages[-1]) == (1, 2) and again.last_reply == "first reply"


def test_a_reply_that_failed_before_its_first_word_is_no_branch(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.client.refuse("r1", "the engine died")
    opened.controller.retry()
    opened.client.reply("r2", "Hi")
    assert opened.controller.place(opened.controller.messages[-1]) == (1, 1)


def test_a_reply_that_was_stopped_before_its_first_word_is_no_branch(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.controller.stop()
    opened.controller.retry()
    opened.client.reply("r2", "Hi")
    assert opened.controller.place(opened.controller.messages[-1]) == (1, 1)
    assert opened.open(opened.controller.id).place(opened.controller.messages[-1]) == (1, 1)


def test_a_running_reply_is_neither_regenerated_nor_left(branched: Opened) -> None:
    branched.controller.regenerate()
    branched.controller.regenerate()
    branched.controller.step_branch(-1)
    assert len(branched.client.requests) == 3 and branched.controller.messages[-1].status == "streaming"


def test_a_message_whose_reply_failed_can_be_returned_to(branched: Opened) -> None:
    branched.controller.send("Go on")
    branched.client.refuse("r3", "the engine died")
    branched.controller.step_branch(1)
    assert texts(branched) == ["Hello", "first reply"]
    branched.controller.step_branch(1)
    assert texts(branched) == ["Hello", "second", "Go on", ""]


def test_an_edited_message_begins_a_branch_beside_the_old_one(branched: Opened) -> None:
    controller = branched.controller
    controller.edit(controller.messages[0].id, "Hello again")
    branched.client.reply("r3", "Welcome back")
    assert texts(branched) == ["Hello again", "Welcome back"] and controller.place(controller.messages[0]) == (2, 2)
    controller.step_branch(-1, controller.messages[0].id)
    assert texts(branched) == ["Hello", "second"], "the newest branch through it"


def test_an_edit_stops_the_reply_that_runs(branched: Opened) -> None:
    controller = branched.controller
    controller.send("Go on")
    branched.client.accept("r3")
    branched.client.say("r3", "half")
    controller.send("waits")
    controller.edit(controller.messages[2].id, "Go back")
    assert branched.client.aborted == ["r3"]
    branched.client.reply("r4", "Back")
    assert texts(branched)[:4] == ["Hello", "second", "Go back", "Back"] and texts(branched)[4] == "waits"
    stopped = branched.store.children(controller.messages[1].id, controller.id)[0]
    assert branched.store.children(stopped.id, controller.id)[0].text == "half"


def test_an_older_reply_is_regenerated_in_its_place(branched: Opened) -> None:
    controller = branched.controller
    controller.send("Go on")
    branched.client.reply("r3", "third")
    controller.regenerate(controller.messages[1].id)
    branched.client.reply("r4", "anew")
    assert texts(branched) == ["Hello", "anew"] and controller.place(controller.messages[1]) == (3, 3)
    controller.regenerate(controller.messages[0].id)
    assert [each.text for each in branched.client.requests["r5"].messages] == ["Hello"]


def test_branches_are_walked_where_they_part(branched: Opened) -> None:
    controller = branched.controller
    controller.send("Go on")
    branched.client.reply("r3", "third")
    controller.regenerate()
    branched.client.reply("r4", "fourth")
    reply = controller.messages[1].id
    controller.step_branch(1)
    assert texts(branched) == ["Hello", "second", "Go on", "third"]
    controller.step_branch(1, reply)
    assert texts(branched) == ["Hello", "first reply"]
    controller.step_branch(1)
    assert texts(branched) == ["Hello", "second", "Go on", "fourth"], "the branch written last"


def test_a_deleted_message_takes_what_follows_along_and_comes_back(branched: Opened) -> None:
    controller = branched.controller
    controller.send("Go on")
    branched.client.reply("r3", "third")
    controller.delete(controller.messages[1].id)
    assert texts(branched) == ["Hello", "first reply"] and controller.can_undelete
    controller.undelete()
    assert texts(branched) == ["Hello", "second", "Go on", "third"] and not controller.can_undelete


def test_nothing_is_deleted_under_a_running_reply(branched: Opened) -> None:
    branched.controller.send("Go on")
    branched.controller.delete(branched.controller.messages[0].id)
    branched.client.reply("r3", "third")
    assert texts(branched) == ["Hello", "second", "Go on", "third"]


def test_a_failed_reply_that_the_user_went_on_from_is_counted_where_it_is_shown(branched: Opened) -> None:
    controller = branched.controller
    controller.regenerate()
    branched.client.refuse("r3", "the engine died")
    controller.send("Go on")
    branched.client.reply("r4", "third")
    assert [message.text for message in controller.messages] == ["Hello", "", "Go on", "third"]
    assert controller.place(controller.messages[1]) == (3, 3)

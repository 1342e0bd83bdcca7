"""What the controller does when something cannot be saved."""

from __future__ import annotations

import pytest
from opened_conversation import Opened
from tui.full_disk import no_space

from kvchat.store import StoreError


def test_a_message_that_cannot_be_stored_is_not_sent(opened: Opened) -> None:
    opened.store.delete_conversation(opened.controller.id)
    with pytest.raises(StoreError):
        opened.controller.send("Hello")
    assert not opened.client.requests
    assert opened.controller.reply is None


def test_a_reply_that_cannot_be_saved_goes_on_and_says_so(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("Hello")
    opened.store.delete_conversation(controller.id)
    client.reply("r1", "Hi")
    assert controller.messages[-1].text == "Hi"
    assert "trouble" in opened.changes
    assert "deleted" in controller.trouble


def test_a_reply_that_could_not_be_saved_is_saved_with_the_next_write(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("one two")
    client.accept("r1")
    with no_space():
        client.say("r1", "Once upon a time")
        client.finish("r1")
        assert controller.trouble
        with pytest.raises(StoreError):
            controller.send("and then")
    assert opened.store.path(controller.id)[-1].text == ""
    controller.save_draft()
    assert controller.trouble == ""
    reply = opened.store.path(controller.id)[-1]
    assert (reply.text, reply.status, len(reply.token_ids)) == ("Once upon a time", "complete", 4)
    assert reply.metrics is not None
    assert opened.store.path(controller.id) == controller.messages


def test_what_could_not_be_saved_is_saved_at_the_end_or_that_is_said(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("one two")
    with no_space():
        client.accept("r1")
        client.say("r1", "Once upon")
        with pytest.raises(StoreError):
            controller.close()
    controller.close()
    assert opened.store.path(controller.id) == controller.messages
    assert [len(message.token_ids) for message in controller.messages] == [2, 2]
    assert controller.messages[-1].text == "Once upon"


def test_taking_a_message_back_is_saved_when_there_is_space_again(opened: Opened) -> None:
    controller, client = opened.controller, opened.client
    controller.send("too long")
    with no_space():
        client.refuse("r1", "longer than the context", for_good=True)
    assert controller.messages == []
    controller.close()
    assert opened.store.path(controller.id) == []


def test_a_conversation_that_was_deleted_elsewhere_can_be_closed(opened: Opened) -> None:
    opened.controller.send("Hello")
    opened.store.delete_conversation(opened.controller.id)
    opened.client.reply("r1", "Hi")
    opened.controller.close()

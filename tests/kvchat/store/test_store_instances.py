"""Several programs on one history, and programs that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from kvchat.store import Store, Tab

RunBeside = Callable[[str], "subprocess.Popen[str]"]

WRITE = """
store = Store.open(path)
say("ready")
sys.stdin.readline()
conversation = store.create_conversation(title=sys.argv[0])
parent = None
for number in range(300):
    parent = store.append_message(conversation.id, parent, "user", f"text {number}").id
    store.update_message(parent, text=f"longer text {number}")
    store.save_draft(conversation.id, str(number))
store.close()
"""

REOPEN = """
say("ready")
sys.stdin.readline()
for number in range(40):
    with Store.open(path) as store:
        store.create_conversation(title=f"{number}")
"""

STREAM = """
store = Store.open(path)
store.open_tabs()
conversation = store.create_conversation()
store.save_tabs([Tab(conversation.id, active=True)])
question = store.append_message(conversation.id, None, "user", "Tell me everything.")
reply = store.append_message(conversation.id, question.id, "assistant", "", status="streaming")
say(conversation.id)
for number in range(1_000_000):
    store.update_message(reply.id, text="word " * number, token_ids=range(number))
    store.save_draft(conversation.id, f"draft {number}")
    say(number)
"""


def kill(process: subprocess.Popen[str]) -> list[str]:
    """End a process as kill -9 does, and return the lines it said that were not read yet."""
    os.kill(process.pid, signal.SIGKILL)
    assert process.stdout is not None
    rest = process.stdout.read()
    process.wait()
    return rest[: rest.rfind("\n") + 1].splitlines()


def let_go(*processes: subprocess.Popen[str]) -> None:
    """Start the work of processes that said they are ready, at the same time, and wait until they succeeded."""
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert process.wait() == 0


def test_two_instances_write_at_the_same_time(path: Path, run_beside: RunBeside) -> None:
    let_go(run_beside(WRITE), run_beside(WRITE))
    with Store.open(path) as store:
        for conversation in store.conversations():
            texts = [message.text for message in store.path(conversation.id)]
            assert texts == [f"longer text {number}" for number in range(300)]
        assert len(store.conversations()) == 2


def test_two_instances_open_create_and_close_at_the_same_time(path: Path, run_beside: RunBeside) -> None:
    let_go(run_beside(REOPEN), run_beside(REOPEN))
    with Store.open(path) as store:
        assert len(store.conversations()) == 80


def test_a_killed_program_loses_nothing_that_was_committed(path: Path, run_beside: RunBeside) -> None:
    process = run_beside(STREAM)
    assert process.stdout is not None
    conversation_id = process.stdout.readline().strip()
    said = [process.stdout.readline().strip() for _ in range(50)]
    last = int([*said, *kill(process)][-1])
    with Store.open(path) as store:
        question, reply = store.path(conversation_id)
        assert (question.text, question.status) == ("Tell me everything.", "complete")
        assert reply.status == "stopped"
        words = len(reply.token_ids)
        assert words in (last, last + 1)
        assert reply.text == "word " * words
        [tab] = store.open_tabs()
        assert tab.active and tab.conversation_id == conversation_id
        assert tab.draft in (f"draft {last}", f"draft {last + 1}")


def test_a_reply_that_another_instance_streams_is_left_alone_until_that_instance_dies(
    path: Path, run_beside: RunBeside
) -> None:
    process = run_beside(STREAM)
    assert process.stdout is not None
    conversation_id = process.stdout.readline().strip()
    with Store.open(path) as store:
        assert store.path(conversation_id)[-1].status == "streaming"
        kill(process)
        assert store.path(conversation_id)[-1].status == "streaming"
    with Store.open(path) as store:
        assert store.path(conversation_id)[-1].status == "stopped"


def test_closing_stops_what_this_instance_still_streams(path: Path) -> None:
    with Store.open(path) as other, Store.open(path) as store:
        conversation = store.create_conversation()
        theirs = other.append_message(conversation.id, None, "assistant", "theirs", status="streaming")
        ours = store.append_message(conversation.id, None, "assistant", "ours", status="streaming")
        store.close()
        assert other.message(ours.id).status == "stopped"
        assert other.message(theirs.id).status == "streaming"


def test_the_first_instance_owns_the_tabs_until_it_is_killed(path: Path, run_beside: RunBeside) -> None:
    process = run_beside(STREAM)
    assert process.stdout is not None
    conversation_id = process.stdout.readline().strip()
    with Store.open(path) as second:
        assert not second.owns_tabs
        assert second.open_tabs() == []
        second.save_tabs([Tab(second.create_conversation().id)])
        second.save_draft(conversation_id, "overwritten")
    kill(process)
    with Store.open(path) as third:
        assert third.owns_tabs
        [tab] = third.open_tabs()
        assert tab.conversation_id == conversation_id
        assert tab.draft != "overwritten"


def test_a_program_that_never_asks_for_tabs_takes_them_from_nobody(path: Path) -> None:
    with Store.open(path) as search_command, Store.open(path) as chat:
        search_command.search("anything")
        assert chat.owns_tabs


def test_a_tab_of_a_conversation_deleted_by_another_instance_is_left_out(path: Path) -> None:
    with Store.open(path) as owner, Store.open(path) as other:
        kept, deleted = owner.create_conversation(), owner.create_conversation()
        other.delete_conversation(deleted.id)
        owner.save_tabs([Tab(deleted.id), Tab(kept.id)])
        assert owner.open_tabs() == [Tab(kept.id)]


def test_closing_leaves_no_trace_of_the_instance(path: Path, run_beside: RunBeside) -> None:
    process = run_beside(STREAM)
    assert process.stdout is not None
    process.stdout.readline()
    kill(process)
    assert len(list(path.parent.rglob("*.instance"))) == 1
    with Store.open(path):
        assert len(list(path.parent.rglob("*.instance"))) == 1
    assert list(path.parent.rglob("*.instance")) == []

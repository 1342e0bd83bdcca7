"""The message tree against a plain Python model of it, through reopening."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from kvchat.store import Status, Store, StoredMessage

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TOKEN_IDS = st.lists(st.integers(0, 2**32 - 1), max_size=5)
STATUSES = st.sampled_from(["complete", "streaming", "stopped", "failed"])


@dataclass(slots=True)
class Node:
    parent: int | None
    text: str
    token_ids: tuple[int, ...]
    status: str


@dataclass(slots=True)
class Tree:
    nodes: dict[int, Node] = field(default_factory=dict)
    leaf: int | None = None


class TreeMachine(RuleBasedStateMachine):
    conversations = Bundle("conversations")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "history.db"
        self.store = Store.open(self.path)
        self.trees: dict[str, Tree] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(target=conversations, title=TEXTS)
    def create(self, title: str) -> str:
        conversation = self.store.create_conversation(title=title)
        self.trees[conversation.id] = Tree()
        return conversation.id

    @rule(conversation=conversations, data=st.data(), text=TEXTS, token_ids=TOKEN_IDS, status=STATUSES)
    def append(self, conversation: str, data: st.DataObject, text: str, token_ids: list[int], status: Status) -> None:
        tree = self.trees[conversation]
        parent = data.draw(st.sampled_from([None, *tree.nodes]))
        role = "assistant" if parent else "user"
        message = self.store.append_message(conversation, parent, role, text, status=status, token_ids=token_ids)
        assert message.id not in tree.nodes
        tree.nodes[message.id] = Node(parent, text, tuple(token_ids), status)
        tree.leaf = message.id

    @precondition(lambda self: any(tree.nodes for tree in self.trees.values()))
    @rule(data=st.data(), text=TEXTS, token_ids=TOKEN_IDS, status=STATUSES)
    def update(self, data: st.DataObject, text: str, token_ids: list[int], status: Status) -> None:
        tree = data.draw(st.sampled_from([tree for tree in self.trees.values() if tree.nodes]))
        message_id = data.draw(st.sampled_from(list(tree.nodes)))
        self.store.update_message(message_id, text=text, token_ids=token_ids, status=status)
        tree.nodes[message_id] = Node(tree.nodes[message_id].parent, text, tuple(token_ids), status)

    @rule(conversation=conversations, data=st.data())
    def show_branch(self, conversation: str, data: st.DataObject) -> None:
        tree = self.trees[conversation]
        tree.leaf = data.draw(st.sampled_from([None, *tree.nodes]))
        self.store.update_conversation(conversation, leaf_id=tree.leaf)

    @rule(conversation=consumes(conversations))
    def delete(self, conversation: str) -> None:
        self.store.delete_conversation(conversation)
        del self.trees[conversation]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open(self.path)
        for tree in self.trees.values():
            for node in tree.nodes.values():
                node.status = "stopped" if node.status == "streaming" else node.status

    @invariant()
    def conversations_are_those_of_the_model(self) -> None:
        found = {conversation.id: conversation.leaf_id for conversation in self.store.conversations()}
        assert found == {conversation: tree.leaf for conversation, tree in self.trees.items()}

    @invariant()
    def every_path_leads_from_a_root_to_the_leaf(self) -> None:
        for conversation, tree in self.trees.items():
            branch, current = [], tree.leaf
            while current is not None:
                branch.insert(0, current)
                current = tree.nodes[current].parent
            assert [message.id for message in self.store.path(conversation)] == branch

    @invariant()
    def children_partition_the_tree(self) -> None:
        for conversation, tree in self.trees.items():
            seen: dict[int, Node] = {}
            for parent in [None, *tree.nodes]:
                children = self.store.children(parent, conversation)
                assert [child.id for child in children] == sorted(child.id for child in children)
                for child in children:
                    assert self.store.siblings(child.id) == children
                    seen[child.id] = as_node(child)
            assert seen == tree.nodes


def as_node(message: StoredMessage) -> Node:
    return Node(message.parent_id, message.text, message.token_ids, message.status)


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)

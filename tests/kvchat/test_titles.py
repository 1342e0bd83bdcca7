"""What a model answers for a title, and which of it can be shown."""

from __future__ import annotations

import pytest
from opened_conversation import Opened
from tui.scripted_client import ScriptedClient

from engine.api import Finished, Metrics
from kvchat.store import Store
from kvchat.titles import Titler, explains_itself, title_request, usable_title

EGG = "How do I boil an egg so that the yolk stays soft, and for how long?"
EXCHANGE = f"{EGG}\nBoil it for six minutes in water, then cool it."


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Boiling a soft egg", "Boiling a soft egg"),
        (' "soft   boiled egg."\n', "Soft boiled egg"),
        ("**Boil an egg**", "Boil an egg"),
        ("boil_egg function", ""),
        ("Six minutes for soft boiled eggs", "Six minutes for soft boiled eggs"),
        ("Perfectly soft yolk, boiled in water", "Perfectly soft yolk, boiled in water"),
        ("", ""),
        ("?!", ""),
        ("Egg", ""),
        ("Photosynthesis for children", ""),
        ("Boiling eggs with champagne in Paris", ""),
        ("Boil boil boil", ""),
        ("Boiling water to boil the water", ""),
        ("I'm here to boil your egg", ""),
        ("Sure, here is a title", ""),
        ("Boil the egg for six minutes in water, then cool it so that the yolk stays soft", ""),
    ],
)
def test_a_title_says_nothing_that_the_exchange_does_not(answer: str, title: str) -> None:
    assert usable_title(answer, EXCHANGE) == title


def test_a_short_question_is_its_own_title() -> None:
    assert explains_itself("What is the capital of France?\n")
    assert not explains_itself(EGG)
    assert not explains_itself("def f(x):\n  pass")


def test_the_request_is_short_greedy_and_less_important_than_any_other() -> None:
    request = title_request("x" * 100_000, "c")
    assert (request.sampling.temperature, request.owner) == (0, "c")
    assert request.priority < 0 and request.sampling.max_tokens < 20
    assert len(request.messages[-1].text) < 1000


class TestTitler:
    @pytest.fixture
    def titler(self, opened: Opened, client: ScriptedClient) -> Titler:
        """It hears what happens to the conversation, and what the engine says."""
        tab = opened.controller
        titler = Titler(client, lambda sought: tab if sought == tab.id else None, lambda: tab.reply)

        def changed(controller: object, change: str) -> None:
            titler.changed(tab, change)

        tab._on_change = changed
        client.start(lambda events: [(tab.handle(event), titler.handle(event)) for event in events])
        return titler

    def answer(self, client: ScriptedClient, text: str) -> None:
        [*_, request_id] = client.requests
        client.emit(Finished(request_id, "stop", text, (), Metrics()))

    def test_the_first_exchange_gets_a_title(self, titler: Titler, opened: Opened, client: ScriptedClient) -> None:
        opened.controller.send(EGG)
        assert opened.controller.title == "How do I boil an egg so that the yolk stays…"
        client.reply("r1", "Six minutes.")
        assert EGG in client.requests["r2"].messages[-1].text
        self.answer(client, "Soft boiled egg")
        assert opened.store.conversation(opened.controller.id).title == "Soft boiled egg"
        assert opened.store.conversation(opened.controller.id).auto_title

    def test_nothing_is_asked_for_before_the_reply_is_complete_or_after_the_second(
        self, titler: Titler, opened: Opened, client: ScriptedClient
    ) -> None:
        opened.controller.send(EGG)
        client.accept("r1")
        client.say("r1", "Six")
        assert list(client.requests) == ["r1"]
        client.finish("r1")
        self.answer(client, "nonsense about whales and mountains")
        opened.controller.send("And two?")
        client.reply("r3", "Seven.")
        assert list(client.requests) == ["r1", "r2", "r3"]
        assert opened.controller.title == "How do I boil an egg so that the yolk stays…"

    def test_a_message_of_the_user_takes_the_engine_back_and_the_title_comes_later(
        self, titler: Titler, opened: Opened, client: ScriptedClient
    ) -> None:
        opened.controller.send(EGG)
        client.reply("r1", "Six minutes.")
        opened.controller.send("And two?")
        assert client.aborted == ["r2"]
        client.emit(Finished("r2", "aborted", "Soft boi", (), Metrics()))
        assert opened.controller.title.endswith("…")
        client.reply("r3", "Seven.")
        self.answer(client, "Soft boiled egg")
        assert opened.controller.title == "Soft boiled egg"

    def test_a_title_of_the_user_stays(self, titler: Titler, opened: Opened, client: ScriptedClient) -> None:
        opened.controller.send(EGG)
        client.reply("r1", "Six minutes.")
        opened.controller.rename("Breakfast")
        self.answer(client, "Soft boiled egg")
        assert opened.controller.title == "Breakfast"

    def test_a_title_that_was_cut_or_failed_is_none(
        self, titler: Titler, opened: Opened, client: ScriptedClient
    ) -> None:
        opened.controller.send(EGG)
        client.reply("r1", "Six minutes.")
        client.emit(Finished("r2", "length", "Soft boiled egg", (), Metrics()))
        assert opened.controller.title.endswith("…")

    def test_a_first_reply_that_failed_or_was_stopped_is_no_exchange(
        self, titler: Titler, opened: Opened, client: ScriptedClient
    ) -> None:
        opened.controller.send(EGG)
        client.refuse("r1", "no memory")
        opened.controller.retry()
        client.accept("r2")
        opened.controller.close()
        assert list(client.requests) == ["r1", "r2"]


async def test_a_short_question_is_not_titled(opened: Opened, client: ScriptedClient, store: Store) -> None:
    titler = Titler(client, lambda _: opened.controller, lambda: opened.controller.reply)
    opened.controller._on_change = lambda _, change: titler.changed(opened.controller, change)
    opened.controller.send("Hello there")
    client.reply("r1", "Hi!")
    assert list(client.requests) == ["r1"] and opened.controller.title == "Hello there"

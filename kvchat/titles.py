"""Titles that the loaded model makes, in place of the first line of the first message, while nothing else runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.api import Event, Failed, Finished, GenerationRequest, Message, SamplingParams
from engine.client import EngineClient
from kvchat.conversation import TITLE_LENGTH, Change, ConversationController, title_of

SELF_EXPLANATORY = 32
"""A message of one line and at most so many characters is its own best title."""
_SHOWN = 400
"""Characters of the first message that the model reads: what is asked stands at the beginning or at the end."""
_MAX_TOKENS = 16
_CONTENT = 4
"""Letters from which on a word carries meaning; also how many of them tell two words apart, whatever their endings."""
_EXAMPLES = (
    ("can you help me fix my bike's brakes, they squeak whenever it rains", "Squeaking bike brakes"),
    ("import pandas as pd\ndf = pd.read_csv('x.csv')\nprint(df.mean())\n\nwhy do I get NaN?", "NaN after reading CSV"),
    ("I'm writing a mail to my landlord, the heating has been broken for two weeks", "Mail about broken heating"),
    ("We want to go hiking in Norway in June. What should we pack?", "Packing for hiking in Norway"),
)
"""Nothing but examples tells a model of 135 million parameters what a title is."""
_CHATTER = re.compile(r"(?i)(i'm|i am|i'd|i can|i have|sure|here is|here's|here are|as an ai|this is|title)\b")


@dataclass(frozen=True, slots=True)
class _Asked:
    request_id: str
    conversation_id: str


class Titler:
    """Asks for the title of a conversation when its first exchange is complete and nothing runs. When anything does,
    the engine is the user's at once, and the title is asked for again later."""

    def __init__(
        self, client: EngineClient, find: Callable[[str], ConversationController | None], busy: Callable[[], object]
    ) -> None:
        """`find` an open conversation; `busy`: whether a reply runs."""
        self._client = client
        self._find = find
        self._busy = busy
        self._waiting: list[str] = []
        self._asked: _Asked | None = None

    def changed(self, tab: ConversationController, change: Change) -> None:
        """A conversation has something new."""
        if change == "ended" and len(tab.messages) == 2 and tab.messages[1].status == "complete" and _lacks_title(tab):
            self._waiting.append(tab.id)
        if change in ("messages", "ended"):
            self._pursue()

    def handle(self, event: Event) -> None:
        """Fold in an event of the running request; one of any other request is ignored."""
        asked = self._asked
        if not isinstance(event, Finished | Failed) or asked is None or event.request_id != asked.request_id:
            return
        self._asked = None
        tab = self._find(asked.conversation_id)
        if isinstance(event, Finished) and event.finish_reason == "stop" and tab and _lacks_title(tab):
            exchange = "\n".join(message.text for message in tab.messages[:2])
            if title := usable_title(event.text, exchange):
                tab.suggest_title(title)
        self._pursue()

    def _pursue(self) -> None:
        if self._busy():
            if self._asked:
                self._client.abort(self._asked.request_id)
                self._waiting.insert(0, self._asked.conversation_id)
                self._asked = None
            return
        while self._waiting and not self._asked:
            tab = self._find(self._waiting.pop(0))
            if tab and _lacks_title(tab):
                self._asked = _Asked(self._client.submit(title_request(tab.messages[0].text, tab.id)), tab.id)


def _lacks_title(tab: ConversationController) -> bool:
    """Whether its title is only the first line of what it is about."""
    text = tab.messages[0].text if tab.messages else ""
    return tab.conversation.auto_title and tab.title == title_of(text) and not explains_itself(text)


def explains_itself(text: str) -> bool:
    """Whether the first line of a first message is all that there is to say about it."""
    return len(text.strip()) <= SELF_EXPLANATORY and "\n" not in text.strip()


def title_request(text: str, owner: str) -> GenerationRequest:
    """Ask for a title of the conversation `owner`, which begins with `text`: short, and after everything else."""
    turns = [Message("system", "You give each text a title of two to five words.")]
    for example, title in _EXAMPLES:
        turns += [Message("user", _asked(example)), Message("assistant", title)]
    sampling = SamplingParams(temperature=0, max_tokens=_MAX_TOKENS, stop=("\n",))
    turns.append(Message("user", _asked(text)))
    return GenerationRequest(messages=tuple(turns), sampling=sampling, owner=owner, priority=-1)


def _asked(text: str) -> str:
    text = text.strip()
    if len(text) > _SHOWN:
        text = f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"
    return f"Text: {text}\nTitle:"


def usable_title(answer: str, exchange: str) -> str:
    """The title in what the model answered, empty if there is none that can be shown without blushing.

    Whatever a title says must be in the `exchange` it is for: of its words with a meaning one may be new if three are
    not. What is too long, repeats itself or talks to the user is none.
    """
    title = " ".join(answer.split()).strip(" \"'“”«»*#`_-.:;,")
    words = re.findall(r"\w+", title.casefold())
    content = [word for word in words if len(word) >= _CONTENT]
    if not content or len(title) > TITLE_LENGTH or _CHATTER.match(title):
        return ""
    stems = [word[:_CONTENT] for word in content]
    if len(set(stems)) < len(stems):
        return ""
    there = exchange.casefold()
    new = sum(stem not in there for stem in stems)
    return (
        ""
        if new > 1 or (new and len(stems) - new < 3)
        else title[0].upper() + title[1:]
        if words[0].isalpha()
        else title
    )

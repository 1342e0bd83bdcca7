"""`kvchat -p`: one question, one reply on stdout, with the engine in this process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec
from msgspec.structs import replace

from engine.api import Event, Failed, Finished, GenerationRequest, Message, TokenDelta
from engine.errors import EngineError, InvalidRequest
from engine.locate import model_folder
from engine.model.config import ModelConfig
from kvchat.cli import INTERRUPTED
from kvchat.cli.options import Options
from kvchat.cli.settings import Settings, resolve, sampling_flags
from kvchat.tui.format import printable

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.engine import Engine
    from kvchat.store import Conversation, Store

MAX_TOKEN_BYTES = 64
"""More than the tokens of any real text have on average; typical are 4."""


def answer(prompt: str, options: Options, as_json: bool, continue_last: bool) -> None:
    """Stream the reply to stdout, or print one JSON object when it is complete. It goes on with the last conversation
    of the history and is kept there, or is kept nowhere."""
    # There is nothing to clean up, and an exception would be lost where it interrupts the import of torch.
    signal.signal(signal.SIGINT, _interrupted)
    question = _question(prompt)
    settings = resolve(options)
    _require_room(question, settings.config.engine)
    if not continue_last:
        engine = _engine(settings)
        _print_reply(_asked(engine, _request(question, settings)), engine, settings, as_json)
        return

    from kvchat.cli.continuing import continued
    from kvchat.store import Store

    with Store.open() as store:
        conversation = _last(store, options, settings)
        engine = _engine(settings)
        events = continued(engine, settings.config.model, store, conversation, question)
        _print_reply(events, engine, settings, as_json)


def _engine(settings: Settings) -> Engine:
    from engine.engine import Engine  # imports torch: not before the input is known to be right

    engine = Engine(settings.config.engine)
    if engine.info.kv_warning:
        print(f"kvchat: {engine.info.kv_warning}", file=sys.stderr)
    return engine


def _last(store: Store, options: Options, settings: Settings) -> Conversation:
    """The conversation to go on with, sampled as the flags say this once. Raises StoreError."""
    conversation = store.last_conversation()
    if store.message(cast(int, conversation.leaf_id)).status == "streaming":
        raise click.ClickException("a reply is running in the last conversation, in another window: wait for its end")
    conversation = store.update_conversation(conversation.id, model=settings.config.model)
    return replace(conversation, sampling=replace(conversation.sampling, **sampling_flags(options)))


def _asked(engine: Engine, request: GenerationRequest) -> Iterator[Event]:
    engine.submit(request)
    while True:
        for event in engine.step():
            yield event
            if isinstance(event, Finished):
                return


def _print_reply(events: Iterator[Event], engine: Engine, settings: Settings, as_json: bool) -> None:
    """Raises EngineError."""
    [finished] = [done for event in events if (done := _show(event, as_json))]
    if as_json:
        print(json.dumps(_report(settings.config.model, engine, finished), ensure_ascii=False))
        return
    if not finished.text.endswith("\n"):
        print(flush=True)
    if cut := _cut(finished, engine):
        print(f"kvchat: the reply was cut: {cut}", file=sys.stderr)


def _interrupted(*_: object) -> None:
    if os.isatty(1):
        os.write(1, b"\n")
    os._exit(INTERRUPTED)


def _question(prompt: str) -> str:
    question = "\n\n".join(part for part in (prompt.strip(), _piped().strip("\r\n")) if part)
    if not question.strip():
        raise click.UsageError("the prompt is empty")
    return question


def _piped() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        bad = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise click.UsageError(f"stdin is not valid UTF-8 ({bad}): convert it first") from None


def _require_room(question: str, engine: EngineConfig) -> None:
    """Refuse what is far too long before minutes go into tokenizing it. Raises InvalidRequest."""
    context = engine.context_length or ModelConfig.read(model_folder(engine.model)).context_length
    size = len(question.encode())
    if size > context * MAX_TOKEN_BYTES:
        raise InvalidRequest(
            f"the prompt of {size:,} bytes is too long: a context of {context:,} tokens holds "
            f"less than {context * MAX_TOKEN_BYTES:,} bytes"
        )


def _cut(finished: Finished, engine: Engine) -> str | None:
    """Why the reply ends before its end."""
    if finished.finish_reason == "length":
        return f"it reached max_tokens ({finished.metrics.completion_tokens:,})"
    if finished.finish_reason != "context_full":
        return None
    if finished.metrics.prompt_tokens + finished.metrics.completion_tokens >= engine.info.context_length:
        return f"the context is full ({engine.info.context_length:,} tokens)"
    pool = engine.stats().pool
    return f"the KV cache is full ({pool.total * pool.block_size:,} tokens); set a larger engine.kv_memory"


def _request(question: str, settings: Settings) -> GenerationRequest:
    persona = settings.persona
    system = (Message("system", persona.system_prompt),) if persona.system_prompt else ()
    return GenerationRequest(
        messages=(*system, Message("user", question)), sampling=persona.sampling_params(settings.config.sampling)
    )


def _show(event: Event, as_json: bool) -> Finished | None:
    match event:
        case TokenDelta(text=text) if text and not as_json:
            print(printable(text) if os.isatty(1) else text, end="", flush=True)
        case Failed(error=error):
            raise EngineError(error)
        case Finished():
            return event
    return None


def _report(model: str, engine: Engine, finished: Finished) -> dict[str, Any]:
    metrics, pool = msgspec.structs.asdict(finished.metrics), engine.stats().pool
    return {
        "text": finished.text,
        "model": model,
        "finish_reason": finished.finish_reason,
        "token_ids": finished.token_ids,
        "usage": {name: metrics[name] for name in ("prompt_tokens", "cached_tokens", "completion_tokens")},
        "metrics": {name: metrics[name] for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s", "tokens_per_s")},
        "kv": {
            "dtype": engine.info.kv_dtype,
            "block_size": pool.block_size,
            "blocks_total": pool.total,
            "blocks_used": pool.used + pool.cached,  # those of the reply stay cached when it ends
        },
    }

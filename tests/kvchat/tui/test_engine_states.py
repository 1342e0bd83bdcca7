"""The engine loads, fails, dies and comes back while the interface stays usable."""

from __future__ import annotations

import msgspec
from chat_driver import Open
from scripted_client import MODEL

WIDE = (120, 24)


async def test_the_interface_is_usable_while_the_model_loads(open_chat: Open) -> None:
    async with open_chat(size=WIDE, ready=False) as chat:
        chat.client.loading("reading weights 45 %")
        await chat.shows("reading weights 45 %")
        request = await chat.send("Hello")
        await chat.shows("Hello", "waiting for the engine")
        chat.client.ready()
        chat.client.reply(request, "Hi there")
        await chat.shows("Hi there", "● smollm2-135m-instruct")


async def test_a_dead_engine_is_announced_and_started_again(open_chat: Open) -> None:
    async with open_chat(size=WIDE) as chat:
        request = await chat.send("Hello")
        chat.client.accept(request)
        chat.client.say(request, "Once upon")
        await chat.shows("Once upon")
        chat.client.die("the engine process was killed by SIGKILL")
        await chat.shows("The engine stopped", "a new one is starting", "Once upon", "failed: the engine process")
        assert chat.client.starts == 2
        chat.client.loading("reading weights")
        await chat.shows("reading weights", "The engine stopped")
        chat.client.ready()
        await chat.shows_not("The engine stopped")
        await chat.press("f5")
        await chat.until(lambda: len(chat.client.requests) == 2)
        chat.client.reply("r2", "Once upon a time")
        await chat.shows("Once upon a time")
        await chat.shows_not("failed:")


async def test_an_engine_that_dies_before_it_is_ready_is_not_started_forever(open_chat: Open) -> None:
    async with open_chat(size=WIDE, ready=False) as chat:
        chat.client.die()
        await chat.shows("before it was ready", "F9 tries again")
        assert chat.client.starts == 1
        await chat.press("f9")
        await chat.until(lambda: chat.client.starts == 2)
        await chat.shows_not("before it was ready")


async def test_a_model_that_cannot_be_loaded_says_what_to_do(open_chat: Open) -> None:
    async with open_chat(size=WIDE, ready=False) as chat:
        await chat.send("Hello")
        chat.client.fail("no model.safetensors: run kvchat pull smollm2-135m-instruct")
        await chat.shows("No engine: no model.safetensors", "F9 tries again", "no engine", "failed:")
        await chat.press("f9")
        await chat.until(lambda: chat.client.starts == 2)
        chat.client.ready()
        await chat.press("f5")
        await chat.until(lambda: len(chat.client.requests) == 2)


async def test_restarting_is_offered_only_when_there_is_no_engine(open_chat: Open) -> None:
    async with open_chat(size=WIDE) as chat:
        await chat.press("f9")
        assert chat.client.starts == 1
        chat.client.fail("broken")
        await chat.shows("F9 Restart engine")


async def test_a_cache_that_loses_too_much_is_told_at_the_start_and_in_the_panel(open_chat: Open) -> None:
    async with open_chat(size=(120, 36), ready=False) as chat:
        warning = "perplexity +4.2% by the int4 KV cache: more than the 3.0% it should cost"
        chat.client.ready(msgspec.structs.replace(MODEL, kv_dtype="int4", kv_warning=warning))
        await chat.shows("The KV cache", "kv int4")
        await chat.shows("perplexity +4.2% by the int4 K…")

"""The same conversation open in two windows."""

from __future__ import annotations

from pathlib import Path

from chat_driver import Open

from kvchat.store import Store


async def test_both_windows_can_go_on_with_one_conversation(open_chat: Open, store: Store, tmp_path: Path) -> None:
    async with open_chat() as first:
        first.client.reply(await first.send("one"), "two")
        await first.shows("tok/s")
        with Store.open(tmp_path / "kvchat.db") as other:
            async with open_chat(store=other) as second:
                await second.shows("kvchat is open elsewhere")
                await second.press("ctrl+o")
                await second.shows("1 shown")
                await second.press("enter")
                await second.shows("two")
                here, there = await first.send("from the first"), await second.send("from the second")
                second.client.reply(there, "answer to the second")
                first.client.reply(here, "answer to the first")
                await first.shows("answer to the first")
                await second.shows("answer to the second")
                await first.until(lambda: not first.app.workspace.running())
                await second.until(lambda: not second.app.workspace.running())
        assert [message.text for message in first.tab.messages][-1] == "answer to the first"
    kept = {hit.message.text for hit in store.search("answer", 10) if hit.message}
    assert kept == {"answer to the first", "answer to the second"}


async def test_a_conversation_deleted_in_one_window_is_said_in_the_other(
    open_chat: Open, store: Store, tmp_path: Path
) -> None:
    async with open_chat() as first:
        first.client.reply(await first.send("one"), "two")
        await first.shows("tok/s")
        with Store.open(tmp_path / "kvchat.db") as other:
            other.delete_conversation(first.tab.id)
        first.app.chat.active_pane.composer.editor.insert("three")
        await first.press("enter")
        await first.shows("not sent")
        assert first.app.chat.active_pane.composer.editor.text == "three"

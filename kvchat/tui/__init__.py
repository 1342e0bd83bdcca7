"""The terminal interface: `kvchat.tui.app.KvChatApp` over a store, an engine client and the personas."""

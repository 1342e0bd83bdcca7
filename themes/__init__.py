"""Theme files shipped with kvchat; `kvchat.tui.themes` reads them."""

"""The widgets of the chat screen, a module per region."""

"""Errors of the engine. Each message is one line: what went wrong, where, and what to do."""


class EngineError(Exception):
    """Base of everything the engine raises on purpose; str(error) is fit to show to a user."""


class InvalidRequest(EngineError):
    """The request can never run: empty prompt, bad sampling value, longer than the context or the pool."""


class PromptTooLong(InvalidRequest):
    """The prompt does not fit the model's context or the pool of KV blocks."""


class ModelError(EngineError):
    """The model folder is missing, damaged, partial or of an architecture the engine does not know."""


class ConfigError(EngineError):
    """An engine setting is out of range or does not fit this machine."""

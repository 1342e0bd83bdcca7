"""Every folder and file the application touches, asked of the platform at each call: the environment may move them."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_data_path, user_log_path, user_state_path

from engine.locate import models_dir

__all__ = [
    "cache_dir",
    "config_dir",
    "config_file",
    "data_dir",
    "database_file",
    "log_dir",
    "models_dir",
    "state_dir",
]

APP = "kvchat"


def config_dir() -> Path:
    return user_config_path(APP, appauthor=False)


def config_file() -> Path:
    return config_dir() / "config.toml"


def data_dir() -> Path:
    return user_data_path(APP, appauthor=False)


def database_file() -> Path:
    return data_dir() / "kvchat.db"


def cache_dir() -> Path:
    return user_cache_path(APP, appauthor=False)


def state_dir() -> Path:
    return user_state_path(APP, appauthor=False)


def log_dir() -> Path:
    return user_log_path(APP, appauthor=False)

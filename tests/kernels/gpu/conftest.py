"""These tests need Triton, which comes with kvchat on Linux alone."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]

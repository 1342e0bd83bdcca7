from __future__ import annotations

from kvchat.cli import main

if __name__ == "__main__":
    main()

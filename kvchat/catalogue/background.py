"""A pull in a process of its own: it computes, may import heavy libraries, and can be ended at any time.

The process is this module; it writes a line of JSON for each report, null at the end, or a string that says why not.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple

from engine.errors import ModelError
from kvchat.catalogue.progress import Progress


class BackgroundPull:
    """One pull, begun when this is made."""

    def __init__(self, model: str) -> None:
        command = [sys.executable, "-m", __name__, model]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def reports(self) -> Iterator[Progress]:
        """How far it is, until the model is installed. Raises ModelError when it cannot be, or was cancelled."""
        with self._process as process:
            for line in process.stdout or ():
                report = json.loads(line)
                if report is None:
                    return
                if isinstance(report, str):
                    raise ModelError(report)
                yield Progress(*report)
        raise ModelError("the pull was ended before the model was complete")

    def cancel(self) -> None:
        """End it. What a Hub download has so far is kept for the next pull; anything else is removed then."""
        self._process.terminate()


def _say(report: object) -> None:
    print(json.dumps(report), flush=True)


def main(model: str) -> None:
    """The process."""
    from kvchat.catalogue.pull import pull

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the UI's
    try:
        pull(model, lambda progress: _say(astuple(progress)))
    except ModelError as error:
        _say(str(error))
    else:
        _say(None)


if __name__ == "__main__":
    main(sys.argv[1])

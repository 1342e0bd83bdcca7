"""What the GPU kernels take of a GPU, without one: compiled ahead of time, read out of the machine code.

`python -m kernels.gpu.aot --arch 90` prints a line for each of the shapes that the launchers choose.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import msgspec

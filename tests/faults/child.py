"""What runs in a child process: `python -m tests.faults.child module:function ARGS_AS_JSON`."""

from __future__ import annotations

import importlib
import json
import os
import sys


def tell(what: object) -> None:
    """Tell the test something: one line, in one write, so that a kill never leaves half of it."""
    os.write(1, json.dumps(what).encode() + b"\n")


def main() -> None:
    """Run the function that the command line names."""
    module, _, function = sys.argv[1].partition(":")
    run = getattr(importlib.import_module(module), function)
    tell({"pid": os.getpid()})
    run(*json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()

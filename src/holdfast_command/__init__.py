"""The entry point of the `holdfast` command, outside the package: importing that takes a tenth of a second.

Ctrl-C in this time ends the process by the signal, without a traceback: there is nothing to clear away yet.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from holdfast.cli.main import main as run

    run()

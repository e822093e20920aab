"""The entry point of the `holdfast` command, outside the package: importing that takes a tenth of a second.

Ctrl-C in this time ends the process by the signal, without a traceback: there is nothing to clear away yet.
Every Python since 2.7 can read this file, and says in one line that it is too old.
"""

import signal
import sys


def main():
    # type: () -> None
    """Run the command line."""
    if sys.version_info < (3, 11):  # noqa: UP036 - where it is not installed, but on the path
        try:
            import holdfast  # noqa: F401 - it refuses
        except ImportError as error:
            sys.exit("holdfast: %s" % error)  # noqa: UP031
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from holdfast.cli.main import main as run

    run()

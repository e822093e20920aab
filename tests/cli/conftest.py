"""What every test of the command line stands on."""

from tests.cli.stage import stage

__all__ = ["stage"]

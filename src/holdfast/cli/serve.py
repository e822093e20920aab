"""`holdfast serve`: the lock server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import uvloop

from holdfast.cli import screen
from holdfast.server import logs, passwords
from holdfast.server.process import serve as serve_until_stopped
from holdfast.server.settings import DEFAULT_STORE, LOG_FORMATS, LOG_LEVELS, Settings, read

_STORE = f"sqlite:///path, etcd://a,b,c (replicated), or memory:// (not durable).  [default: {DEFAULT_STORE}]"


def _protect(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """--protect-password: print what a configuration keeps of a password, and end."""
    if wanted and not ctx.resilient_parsing:
        password = click.prompt("Password", hide_input=True, err=True)
        screen.verbatim(passwords.protect(password))
        ctx.exit()


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file (TOML), read again on SIGHUP.")
@click.option("--listen", multiple=True, metavar="HOST:PORT", help="Where to listen.  [default: 127.0.0.1:7420]")
@click.option("--store", metavar="URL", help=_STORE)
@click.option("--advertise", metavar="HOST:PORT", help="Where clients reach this one of several.  [default: --listen]")
@click.option("--http", metavar="HOST:PORT", help="Health, metrics and /v1/locks.  [default: none]")
@click.option("--insecure", is_flag=True, default=None, help="Allow an address that others can reach without users.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="text on a terminal, json otherwise.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="How much is logged.")
@click.option(
    "--protect-password", is_flag=True, is_eager=True, expose_value=False, callback=_protect,
    help="Ask for a password, print what the configuration keeps of it, and end.",
)  # fmt: skip
def serve(config: Path | None, **given: Any) -> None:
    """Run the lock server.

    It speaks RESP, the protocol of Redis; nothing is answered before it is on disk. Clients
    connect to holdfast://HOST:PORT. SIGHUP reloads the configuration, SIGTERM stops it in order.

    \b
    Examples:
      holdfast serve --store sqlite:////var/lib/holdfast/locks.db --http 127.0.0.1:7421
      holdfast serve --config /etc/holdfast/server.toml
    """
    overrides = {key: value for key, value in given.items() if value is not None and value != ()}
    if "listen" in overrides:
        overrides["listen"] = list(overrides["listen"])

    def reread() -> Settings:
        return read(config, overrides)

    settings = reread()
    logs.set_up(settings.log_format, settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_until_stopped(settings, reread))

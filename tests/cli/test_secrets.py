"""Nothing that a URL says before its last `@` is shown: by no command, error, log or repr."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

import click
import pytest

import holdfast
from holdfast import aio
from holdfast.cli import exit_codes
from holdfast.cli.main import cli
from holdfast.engines.registry import OWN
from tests.cli.stage import Stage

SECRET = "zqz"
"""What no word that is shown has in it."""
PASSWORDS = [
    f"{SECRET}{between}{SECRET}"
    for between in ("", "/", "?", "#", "@", ":", "%", "%zz", " ", "\n", "\0", "é", "//", "&a=", "?a=", "[", "'", ",")
]
HOSTS = [
    "127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/0", "127.0.0.1:1/0?nonsense=1", "127.0.0.1:99999",
    "127.0.0.1:port", "[::1", "::1:5", "", "/", "127.0.0.1:1/\0", "127.0.0.1:1?tls=perhaps",
]  # fmt: skip
FORMS = [
    *(f"{{scheme}}://{SECRET}:{{password}}@{hosts}" for hosts in HOSTS),
    "{scheme}://:{password}@h", "{scheme}://{password}@h", "{scheme}:///u:{password}@h", "{scheme}:/u:{password}@h",
    "{scheme}//u:{password}@h", "{scheme}:u:{password}@h", "u:{password}@h", " {scheme}://u:{password}@h",
    "{scheme}://h?password={password}", "{scheme}://h1,h2,h3/name?ca=x&sentinel_password={password}",
]  # fmt: skip


def urls(scheme: str) -> Iterator[str]:
    """URLs with a secret before their last `@`, or in an option, as it is and percent-encoded."""
    for form, password in product(FORMS, PASSWORDS):
        for written in {password, quote(password, safe="")}:
            yield form.format(scheme=scheme, password=written)


def told(error: BaseException) -> str:
    """All that an error says, with those that led to it."""
    return f"{''.join(traceback.format_exception(error))} {error!r} {error.args!r} {vars(error)!r}"


def connected(url: str) -> str:
    """What is said of a URL by a client of it, or by the error."""
    try:
        with holdfast.connect(url) as locks:
            core: Any = locks._core
            return f"{locks} {locks!r} {core} {core!r} {core.engine!r} {getattr(core.engine, 'address', '')!r}"
    except holdfast.HoldfastError as error:
        return told(error)


# rediss:// is read as redis:// is, and takes long: each client of it reads all certificates.
@pytest.mark.parametrize("scheme", [*(scheme for scheme in OWN if scheme != "rediss"), "nonsense", "no scheme", ""])
def test_whatever_a_url_is_like_its_secrets_are_not_shown(scheme: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for url in urls(scheme):
        if scheme not in ("sqlite", "memory") or not url.startswith(f"{scheme}://"):
            assert SECRET not in connected(url), repr(url)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("scheme", [scheme for scheme in OWN if scheme not in ("sqlite", "memory")])
def test_a_server_that_cannot_be_reached_is_named_without_secrets(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hosts = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3" if scheme == "redlock" else "127.0.0.1:1"
    path = "/service" if scheme == "redis+sentinel" else ""
    url = f"{scheme}://{SECRET}:{SECRET}%2F{SECRET}@{hosts}{path}"
    with holdfast.connect(url) as locks, pytest.raises(holdfast.HoldfastError) as failed:
        locks.lock("k").acquire(wait=0.05)

    async def with_tasks() -> None:
        async with aio.connect(url) as locks:
            await locks.lock("k").acquire(wait=0.05)

    with pytest.raises(holdfast.HoldfastError) as failed_with_tasks:
        asyncio.run(with_tasks())
    assert "127.0.0.1" in told(failed.value)
    assert SECRET not in told(failed.value) + told(failed_with_tasks.value) + caplog.text


def commands_with_a_url() -> Iterator[tuple[str, ...]]:
    """The arguments of each command that takes a URL, with `URL` where it goes."""

    def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from walk(inner, (*path, name))
        else:
            yield path, command

    for path, command in walk(cli, ()):
        for place in command.params:
            if place.name in ("url", "engine", "store", "target"):
                words = [*path, *([place.opts[0]] if isinstance(place, click.Option) else []), "URL"]
                for other in command.params:
                    if other.required and other is not place:
                        words += [other.opts[0], "1"] if isinstance(other, click.Option) else ["k"]
                yield tuple(words)


COMMANDS = list(commands_with_a_url())


def test_the_commands_with_a_url_are_found() -> None:
    assert {words[0] for words in COMMANDS} >= {"ls", "run", "serve", "doctor", "verify", "bench", "tokens", "cluster"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("url", [f"etcd://{SECRET}:p/w?{SECRET}@h", f"etcd//{SECRET}:p?a={SECRET}@h"])
def test_no_command_shows_what_a_url_says_before_its_last_at_sign(
    stage: Stage, words: tuple[str, ...], url: str
) -> None:
    done = stage.call(*(url if word == "URL" else word for word in words))

    assert done.returncode == exit_codes.BAD_INPUT
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [("ls",), ("run", "k", "--", "true"), ("doctor", "--json")])
def test_the_url_of_the_environment_is_not_shown_either(stage: Stage, arguments: tuple[str, ...]) -> None:
    stage.env["HOLDFAST_URL"] = f"etcd://{SECRET}:p/{SECRET}@h"

    done = stage.call(*arguments)

    assert done.returncode == exit_codes.BAD_INPUT
    assert SECRET not in done.stdout + done.stderr
    assert "…@h" in done.stderr


def test_a_store_of_the_configuration_file_is_not_shown_either(stage: Stage) -> None:
    config = stage.folder / "server.toml"
    config.write_text(f'store = ["etcd://u:{SECRET}@h"]\n')

    done = stage.call("serve", "--config", str(config))

    assert done.returncode == exit_codes.BAD_INPUT
    assert SECRET not in done.stdout + done.stderr

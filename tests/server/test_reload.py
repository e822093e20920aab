"""A reload: what counts from then on, and that it never opens the sockets that are there to everybody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.server import passwords
from holdfast.server.addresses import Address
from holdfast.server.limits import Limits
from holdfast.server.process import Process
from holdfast.server.settings import Settings
from holdfast.server.tls import TlsFiles
from holdfast.server.users import User, Users
from holdfast.server.wire_error import WireError
from tests.servers.certificates import Authority
from tests.servers.lock_server import CHEAP

USERS = Users({"ada": User("ada", passwords.protect("secret", CHEAP))})
PUBLIC = Settings(listen=(Address("0.0.0.0", 0),), store="memory://", users=USERS)


def reload(running: Settings, new: Settings) -> Process:
    """A process that was started with the first and has read the second."""
    process = Process(running, lambda: new)
    process.reload()
    process.logins.close()
    return process


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    authority = Authority(tmp_path, "authority")
    pair = authority.issue("server")
    return TlsFiles(str(pair.certificate), str(pair.key), str(authority.own.certificate))


async def test_users_stay_while_the_socket_is_public_whatever_the_file_says_of_addresses() -> None:
    process = reload(PUBLIC, Settings(listen=(Address("127.0.0.1", 0),), store="memory://"))

    assert process.service.users is USERS


async def test_users_stay_if_client_certificates_are_to_replace_them(files: TlsFiles) -> None:
    running = replace(PUBLIC, tls=replace(files, client_ca=""))

    assert reload(running, replace(running, users=Users(), tls=files)).service.users is USERS
    assert reload(PUBLIC, replace(PUBLIC, users=Users(), tls=files)).service.users is USERS


async def test_users_may_go_where_client_certificates_are_asked_for(files: TlsFiles) -> None:
    running = replace(PUBLIC, tls=files)

    assert not reload(running, replace(running, users=Users())).service.users.required


async def test_other_users_are_taken_over() -> None:
    others = Users({"bob": User("bob", passwords.protect("other", CHEAP))})

    assert reload(PUBLIC, replace(PUBLIC, users=others)).service.users is others


async def test_a_lower_limit_counts_for_words_that_were_taken_before() -> None:
    running = Settings(listen=(Address("127.0.0.1", 0),), store="memory://")
    process = Process(running, lambda: replace(running, limits=Limits(text=10)))
    frame = [b"HF.ACQUIRE", b"s-1", b"a", b"NOTE", b"twenty letters, no less"]
    long = [b"HF.ACQUIRE", b"s-1", b"a", b"NOTE", b"x" * 1000]

    assert process.service.terms.acquire(frame).note == "twenty letters, no less"
    process.service.terms.acquire(long)
    assert len(process.service.terms.known) == 1, "what is long is not remembered"
    process.reload()
    with pytest.raises(WireError, match="limit text is 10"):
        process.service.terms.acquire(frame)
    process.logins.close()


async def test_users_whom_nobody_could_log_in_as_before_a_restart_are_refused(files: TlsFiles) -> None:
    running = replace(PUBLIC, tls=replace(files, client_ca=""))
    by_certificate = Users({"bob": User("bob", certificate="bob")})

    assert reload(running, replace(running, users=by_certificate, tls=files)).service.users is USERS

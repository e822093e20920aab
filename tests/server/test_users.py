"""Users: who one is, and what one may do with which names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import EngineUnavailable
from holdfast.server import passwords
from holdfast.verify.servers.process import wait_until
from tests.servers.lock_server import CHEAP, WITHIN, LockServer, Wire

PROTECTED = {name: passwords.protect(f"{name}'s password", CHEAP) for name in ("ada", "bob", "eve", "fixer", "ops")}
CONFIG = """
[users.ada]
password = "{ada}"
rights = [{{ prefix = "ada/", may = ["hold", "read"] }}, {{ prefix = "shared/", may = ["hold"] }}]
[users.bob]
password = "{bob}"
rights = [{{ prefix = "shared/", may = ["hold", "read"] }}]
[users.fixer]
password = "{fixer}"
rights = [{{ prefix = "shared/", may = ["break"] }}]
[users.eve]
password = "{eve}"
[users.ops]
password = "{ops}"
rights = [{{ prefix = "", may = ["hold", "read", "break"] }}]
""".format(**PROTECTED)


@pytest.fixture(scope="module")
def guarded() -> Iterator[LockServer]:
    with LockServer(config=CONFIG) as server:
        yield server


def log_in(server: LockServer, name: str, version: int = 2) -> Wire:
    wire = server.speak()
    assert "proto" in wire("HELLO", version, "AUTH", name, f"{name}'s password")
    return wire


def is_denied(reply: object) -> bool:
    return str(reply).startswith("NOPERM ")


def test_nothing_is_done_before_a_login(guarded: LockServer) -> None:
    with guarded.speak() as wire:
        for command in (("HF.OPEN", "*", "*", 5000), ("HF.LIST",), ("PING",), ("INFO",), ("HF.RAISE", 5), ("HELLO", 3)):
            assert str(wire(*command)).startswith("NOAUTH "), command


def test_a_wrong_password_and_an_unknown_user_sound_the_same(guarded: LockServer) -> None:
    with guarded.speak() as wire:
        wrong, unknown = wire("AUTH", "ada", "guess"), wire("AUTH", "nobody", "guess")

        assert str(wrong) == str(unknown) == "WRONGPASS invalid username-password pair or user is disabled."
        assert str(wire("PING")).startswith("NOAUTH ")


def test_a_login_by_auth_and_by_hello(guarded: LockServer) -> None:
    with guarded.speak() as wire:
        wire.send("AUTH", "ada", "ada's password")
        wire.send("PING")
        assert [wire.reply(), wire.reply()] == ["OK", "PONG"]
    with log_in(guarded, "bob") as wire:
        assert wire("PING") == "PONG"


def test_a_connection_that_does_not_log_in_is_closed() -> None:
    with LockServer(config=CONFIG + "[limits]\nlogin = 200\n") as server, server.speak() as wire:
        assert list(wire.rest()) == []


def test_a_large_frame_before_the_login_is_refused(guarded: LockServer) -> None:
    with guarded.speak() as wire:
        wire.raw(b"*3\r\n$4\r\nAUTH\r\n$3\r\nada\r\n$5000\r\n")

        assert [str(reply) for reply in wire.rest()] == ["ERR Protocol error: a request has at most 4096 bytes"]


def test_many_arguments_make_a_large_frame_too(guarded: LockServer) -> None:
    with guarded.speak() as wire:
        wire.send("AUTH", *["x" * 1000] * 5)

        assert [str(reply) for reply in wire.rest()] == ["ERR Protocol error: a request has at most 4096 bytes"]


def test_hold_is_by_prefix(guarded: LockServer) -> None:
    with log_in(guarded, "ada") as wire:
        wire.open()

        assert wire("HF.ACQUIRE", "*", "ada/x")[0] == "granted"
        assert wire("HF.ACQUIRE", "*", "shared/x")[0] == "granted"
        assert is_denied(wire("HF.ACQUIRE", "*", "bob/x"))
        assert is_denied(wire("HF.ACQUIRE", "*", "ada", "SUBTREE"))
        assert is_denied(wire("HF.CELLSET", "bob/x", "1"))
        assert is_denied(wire("HF.CELLDEL", "bob/x"))
        assert is_denied(wire("HF.ADOPT", "*", "ssssssss-1", "t", "bob/x"))
        wire("HF.CLOSE", "*")


def test_read_is_by_prefix(guarded: LockServer) -> None:
    with log_in(guarded, "ada") as ada, log_in(guarded, "ops") as ops:
        ada.open()
        ops.open()
        for name in ("ada/1", "shared/1", "elsewhere"):
            ops("HF.ACQUIRE", "*", name)

        assert is_denied(ada("HF.INSPECT", "shared/1"))
        assert is_denied(ada("HF.CELLGET", "shared/1"))
        assert is_denied(ada("HF.WATCH", "*", "w", ""))
        assert is_denied(ada("HF.WATCH", "*", "w", "ada"))
        assert is_denied(ada("HF.CELLWATCH", "*", "w", "shared/1"))
        assert ada("HF.WATCH", "*", "w", "ada/") == "OK"
        assert [lock[3] for lock in ada("HF.LIST")[2]] == ["ada/1"]
        assert [lock[3] for lock in ops("HF.LIST")[2]] == ["ada/1", "elsewhere", "shared/1"]
        ops("HF.CLOSE", "*")
        ada("HF.CLOSE", "*")


def test_a_short_list_is_of_what_one_may_read(guarded: LockServer) -> None:
    with log_in(guarded, "bob") as bob, log_in(guarded, "ops") as ops:
        ops.open()
        for name in ("a", "b", "shared/1", "shared/2", "z"):
            ops("HF.ACQUIRE", "*", name)

        word, more, locks, _ = bob("HF.LIST", "COUNT", 1)
        assert (word, more, [lock[3] for lock in locks]) == ("locks", 1, ["shared/1"])
        word, more, locks, _ = bob("HF.LIST", "COUNT", 2)
        assert (word, more, [lock[3] for lock in locks]) == ("locks", 0, ["shared/1", "shared/2"])
        assert bob("HF.LIST", "a") == ["locks", 0, [], None]
        ops("HF.CLOSE", "*")


def test_who_may_not_read_is_not_told_who_holds(guarded: LockServer) -> None:
    with log_in(guarded, "ada") as ada, log_in(guarded, "bob") as bob:
        ada.open()
        bob.open()
        ada("HF.ACQUIRE", "*", "shared/a", "NOTE", "a secret note")
        bob("HF.ACQUIRE", "*", "shared/b", "NOTE", "a secret note")

        word, blocker = bob("HF.ACQUIRE", "*", "shared/a", "WAIT", 0)
        assert (word, blocker[13]) == ("refused", "a secret note")
        assert ada("HF.ACQUIRE", "*", "shared/b", "WAIT", 0) == ["refused", None]
        ada("HF.CLOSE", "*")
        bob("HF.CLOSE", "*")


def test_a_deadlock_is_told_without_what_one_may_not_read(guarded: LockServer) -> None:
    with log_in(guarded, "ada") as ada, log_in(guarded, "bob") as bob:
        one, two = ada.open(), bob.open()
        ada("HF.ACQUIRE", f"{one}-1", "shared/a")
        bob("HF.ACQUIRE", f"{two}-1", "shared/b")
        bob("HF.ACQUIRE", f"{two}-2", "shared/a")

        word, cycle = ada("HF.ACQUIRE", f"{one}-2", "shared/b")

        assert word == "deadlock"
        assert [link[1] for link in cycle] == ["", ""]
        ada("HF.CLOSE", "*")
        bob("HF.CLOSE", "*")


def test_a_watcher_is_told_of_a_deadlock_without_the_locks_that_it_may_not_read(guarded: LockServer) -> None:
    with log_in(guarded, "ada", 3) as ada, log_in(guarded, "ops", 3) as ops:
        session = ops.open()
        ada.open()
        for watcher, prefix in ((ada, "ada/"), (ops, "")):
            watcher("HF.WATCH", "*", "w", prefix)
        ops("HF.ACQUIRE", f"{session}-1", "ada/k", "OWNER", "a")
        ops("HF.ACQUIRE", f"{session}-2", "secret", "OWNER", "b")
        ops("HF.ACQUIRE", f"{session}-3", "secret", "OWNER", "a")
        assert ops("HF.ACQUIRE", f"{session}-4", "ada/k", "OWNER", "b")[0] == "deadlock"

        told = {wire: [e for e in wire("HF.FETCH", "*", "w", 0)[3] if e["type"] == "deadlock"] for wire in (ada, ops)}

        assert [event["detail"] for event in told[ada]] == [""]
        assert ["secret" in event["detail"] for event in told[ops]] == [True]
        ops("HF.CLOSE", "*")
        ada("HF.CLOSE", "*")


def test_break_and_tokens_need_their_right(guarded: LockServer) -> None:
    with log_in(guarded, "ada") as ada, log_in(guarded, "ops") as ops:
        assert is_denied(ada("HF.BREAK", "ada/x"))
        assert is_denied(ada("HF.RAISE", 5))
        assert ops("HF.BREAK", "ada/x") == []
        assert ops("HF.RAISE", 5) == "OK"


@pytest.mark.parametrize("force", [False, True])
def test_whoever_may_break_sees_the_holders_go(guarded: LockServer, force: bool) -> None:
    urls = [f"holdfast://{name}:{name}'s%20password@127.0.0.1:{guarded.port}?durable=0" for name in ("ada", "fixer")]
    with holdfast.connect(urls[0]) as holder, holdfast.connect(urls[1]) as fixer:
        held = holder.lock(f"shared/{force}").acquire()

        assert fixer.break_lock(f"shared/{force}", force=force) == 1
        assert fixer.inspect(f"shared/{force}").holders == ()
        assert not held.valid or held.lost.wait(20.0)
        with pytest.raises(EngineUnavailable, match="NOPERM"):
            fixer.inspect("ada/k")


def test_a_user_without_rights_may_do_nothing_with_any_name(guarded: LockServer) -> None:
    with log_in(guarded, "eve") as wire:
        wire.open()
        assert is_denied(wire("HF.ACQUIRE", "*", "x"))
        assert is_denied(wire("HF.INSPECT", "x"))
        assert is_denied(wire("HF.LIST"))
        wire("HF.CLOSE", "*")


def test_others_connections_are_shown_to_operators_only(guarded: LockServer) -> None:
    with log_in(guarded, "ada") as ada, log_in(guarded, "ops") as ops:
        assert ada("CLIENT", "LIST").count("\n") == 1
        assert ops("CLIENT", "LIST").count("\n") >= 2


def test_a_reset_logs_out(guarded: LockServer) -> None:
    with log_in(guarded, "ada") as wire:
        wire.open()
        assert wire("RESET") == "RESET"

        assert str(wire("HF.ACQUIRE", "*", "ada/x")).startswith("NOAUTH ")


def test_errors_are_counted_by_user(guarded: LockServer) -> None:
    with log_in(guarded, "eve") as wire:
        wire("HF.INSPECT", "x")

    import requests

    page = requests.get(f"http://127.0.0.1:{guarded.http_port}/metrics", auth=("eve", "eve's password"), timeout=20)
    assert 'holdfast_errors_total{error="NOPERM",user="eve"}' in page.text


class TestReload:
    """SIGHUP takes over users, while everything that is held stays held."""

    @pytest.fixture
    def server(self) -> Iterator[LockServer]:
        with LockServer(config=CONFIG) as server:
            yield server

    def test_a_new_right_counts_at_once(self, server: LockServer) -> None:
        with log_in(server, "eve") as wire:
            wire.open()
            rights = 'rights = [{ prefix = "eve/", may = ["hold"] }]\n'
            server.configure(CONFIG.replace("[users.ops]", f"{rights}[users.ops]"))
            server.reload()

            assert wire("HF.ACQUIRE", "*", "eve/x")[0] == "granted"

    def test_events_are_shown_no_more_when_the_right_to_read_them_is_gone(self, server: LockServer) -> None:
        with log_in(server, "bob", 3) as bob, log_in(server, "ops") as ops:
            bob.open()
            bob("HF.WATCH", "*", "w", "shared/")
            bob.send("HF.FETCH", "*", "w", 0, "WAIT", 20_000)
            wait_until(lambda: "blocked_clients:1" in ops("INFO"), WITHIN, "the fetch to wait")
            server.configure(CONFIG.replace('"shared/", may = ["hold", "read"]', '"bob/", may = ["read"]'))
            server.reload()

            ops.open()
            ops("HF.ACQUIRE", "*", "shared/x")

            assert is_denied(bob.reply())
            assert str(bob("HF.WATCH", "*", "w", "bob/")).startswith("HFINVALID ")
            assert is_denied(bob("HF.FETCH", "*", "w", 0))

    def test_a_user_that_is_gone_is_cut_off_and_its_lock_ends_with_its_session(self, server: LockServer) -> None:
        with log_in(server, "ada") as ada, log_in(server, "ops", 3) as ops:
            session = ops.open()
            ada.open(500)
            ada("HF.ACQUIRE", "*", "ada/x")
            ops("HF.ACQUIRE", f"{session}-1", "ada/x")
            server.configure(CONFIG.replace("[users.ada]", "[users.somebody]"))
            server.reload()

            assert list(ada.rest()) == []
            assert ops.push()[:2] == ["hf.granted", f"{session}-1"]

    def test_a_changed_password_cuts_off_who_knew_the_old_one(self, server: LockServer) -> None:
        with log_in(server, "ada") as ada:
            server.configure(CONFIG.replace(PROTECTED["ada"], passwords.protect("another")))
            server.reload()
            assert list(ada.rest()) == []
        with server.speak() as wire:
            assert str(wire("AUTH", "ada", "ada's password")).startswith("WRONGPASS")
            assert wire("AUTH", "ada", "another") == "OK"

    def test_who_has_yet_to_log_in_may_do_so_afterwards(self, server: LockServer) -> None:
        with server.speak() as wire:
            assert str(wire("PING")).startswith("NOAUTH ")
            server.configure(CONFIG.replace(PROTECTED["ada"], passwords.protect("another")))
            server.reload()

            assert str(wire("AUTH", "ada", "ada's password")).startswith("WRONGPASS ")
            assert wire("AUTH", "ada", "another") == "OK"

    def test_who_has_yet_to_log_in_comes_back_where_there_are_no_users_any_more(self, server: LockServer) -> None:
        with server.speak() as wire:
            assert str(wire("PING")).startswith("NOAUTH ")
            server.configure("[limits]\nlogin = 3600000\n")
            server.reload()

            assert list(wire.rest()) == []
            assert server.speak()("PING") == "PONG"

    def test_the_size_of_requests_is_taken_over_for_connections_that_are_there(self, server: LockServer) -> None:
        with log_in(server, "ops") as ops, server.speak() as unknown:
            assert str(unknown("PING")).startswith("NOAUTH ")
            large = "[limits]\nvalue = 3000000\nframe = 4000000\nframe_before_login = 100\n"
            server.configure(CONFIG + large)
            server.reload()

            assert ops("HF.CELLSET", "cell", bytes(2_500_000))[0] == "cell"
            unknown.raw(b"*2\r\n$4\r\nAUTH\r\n$200\r\n")
            assert ["at most 100 bytes" in str(reply) for reply in unknown.rest()] == [True]

    def test_a_configuration_that_cannot_be_used_changes_nothing(self, server: LockServer) -> None:
        with log_in(server, "ada") as ada:
            server.configure(CONFIG + "\n[limits.oddity]\n")
            server.reload("configuration not reloaded")

            assert ada("PING") == "PONG"

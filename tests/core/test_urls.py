"""Engine URLs, taken apart."""

from __future__ import annotations

import pytest

from holdfast.core.urls import Url, parse
from holdfast.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("memory://", Url("memory")),
        ("memory://x", Url("memory", ("x",))),
        ("sqlite:///locks.db", Url("sqlite", (), "locks.db")),
        ("sqlite:////var/lib/locks.db", Url("sqlite", (), "/var/lib/locks.db")),
        ("sqlite:///a%20b.db?adopt=1", Url("sqlite", (), "a b.db", options={"adopt": "1"})),
        ("REDIS://127.0.0.1:6379/0", Url("redis", ("127.0.0.1:6379",), "0")),
        ("redlock://h1,h2:7000,h3", Url("redlock", ("h1", "h2:7000", "h3"))),
        ("redis://me:p%40ss@h/0", Url("redis", ("h",), "0", "me", "p@ss")),
        ("redis://[::1]:6379", Url("redis", ("[::1]:6379",))),
    ],
)
def test_a_url_is_taken_apart(text: str, url: Url) -> None:
    assert parse(text) == url


@pytest.mark.parametrize("text", ["", "locks.db", "sqlite:/locks.db", None, "memory://?adopt", "memory://?a=1&a=2"])
def test_what_is_no_engine_url_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse(text)


def test_a_password_is_never_shown() -> None:
    url = parse("redis://me:secret@h1,h2/0?x=1")
    assert str(url) == "redis://me@h1,h2/0"
    assert "secret" not in repr(url)


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse("redis://me:secret@h/0?nonsense")
    assert "secret" not in str(refused.value)


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="did you mean 'adopt'"):
        parse("sqlite:///x?adpot=1").check_options({"adopt", "other"})
    with pytest.raises(InvalidRequest, match="it knows adopt, other"):
        parse("sqlite:///x?zzz=1").check_options({"adopt", "other"})
    parse("sqlite:///x?adopt=1").check_options({"adopt"})


@pytest.mark.parametrize(("text", "on"), [("1", True), ("TRUE", True), ("yes", True), ("0", False), ("no", False)])
def test_a_flag_is_on_or_off(text: str, on: bool) -> None:
    assert parse(f"sqlite:///x?adopt={text}").flag("adopt") is on
    assert parse("sqlite:///x").flag("adopt") is False


def test_a_flag_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        parse("sqlite:///x?adopt=maybe").flag("adopt")

"""Engine URLs, taken apart."""

from __future__ import annotations

import re

import pytest

from holdfast.core.urls import Url, parse, shown
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
    assert str(url) == "redis://h1,h2/0"
    assert "secret" not in repr(url)


SECRETS = [
    "qqq/zzz",
    "qqq?zzz",
    "qqq#zzz",
    "qqq@zzz",
    "qqq%zzz",
    "qqq//zzz",
    "qqq=1&qqq=zzz",
    "123/zzz",
    "?/zzz",
    "qqq:zzz",
]
FORMS = [
    "{scheme}://{secret}:x@h", "{scheme}://u:{secret}@h", "{scheme}://u:{secret}@h:1,h2/0?a=1", "{scheme}://{secret}@h",
    "{scheme}:///u:{secret}@h", "{scheme}:/u:{secret}@h", "{scheme}//u:{secret}@h", "u:{secret}@h", "u:{secret}://x@h",
    "{scheme}://u:{secret}@h?x=a@b", "{scheme}://u:{secret}@h?nonsense",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scheme", ["redis", "etcd", "sqlite", "Unknown", "no scheme"])
def test_nothing_before_the_last_at_sign_is_shown_whether_the_url_is_valid_or_not(form: str, scheme: str) -> None:
    for text in (form.format(scheme=scheme, secret=secret) for secret in SECRETS):
        try:
            url = parse(text)
            seen = f"{url} {url!r}"
        except InvalidRequest as refused:
            seen = f"{refused} {refused!r} {refused.value} {refused.__cause__}"

        assert re.findall("zzz|qqq|123", f"{seen} {shown(text)}") == [], text
        before, _, after = text.rpartition("@")
        # An `@` behind `?name=` may belong to a secret option.
        assert shown(text).endswith("…" if "=" in before.partition("?")[2] else after.partition("?")[0])


def test_an_at_sign_in_a_path_or_an_option_is_written_with_its_number() -> None:
    url = parse("zookeeper://u:p@h/a%40b?x=c%40d")
    assert (url.path, url.options, url.password) == ("a@b", {"x": "c@d"}, "p")
    with pytest.raises(InvalidRequest, match="%40"):
        parse("zookeeper://h/a@b")
    assert parse("sqlite:////home/me@corp/locks.db").path == "/home/me@corp/locks.db"


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

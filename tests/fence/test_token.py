"""What a fence accepts as a token, and which resource key it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.errors import InvalidRequest, LockLost, NotHeld
from holdfast.fence.token import Presented, check_resource, parse_resource, parse_token, present


@pytest.fixture
def locks(name: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(f"memory://{name.partition(':')[2]}") as client:
        yield client


def test_a_plain_grant_is_fenced_by_its_name(locks: holdfast.Client) -> None:
    with locks.lock("users/7") as grant:
        assert present(grant) == Presented("users/7", grant.token)


def test_the_resource_can_be_chosen(locks: holdfast.Client) -> None:
    with locks.lock("users/7") as grant:
        assert present(grant, "table").resource == "table"


def test_a_permit_is_fenced_by_name_and_slot(locks: holdfast.Client) -> None:
    semaphore = locks.semaphore("gpu", limit=2)
    with semaphore as first, locks.semaphore("gpu", limit=2).acquire() as second:
        assert {present(first).resource, present(second).resource} == {"gpu//0", "gpu//1"}


def test_a_reader_presents_a_shared_token(locks: holdfast.Client) -> None:
    with locks.rwlock("cache").read() as grant:
        assert present(grant) == Presented("cache", grant.token, shared=True)


def test_a_subtree_grant_without_a_resource_is_refused_with_an_explanation(locks: holdfast.Client) -> None:
    with locks.lock("db", subtree=True) as grant:
        with pytest.raises(InvalidRequest, match="covers everything under 'db'"):
            present(grant)
        assert present(grant, "db/users").resource == "db/users"


def test_several_grants_without_a_resource_are_refused_with_an_explanation(locks: holdfast.Client) -> None:
    with locks.lock_all("a", "b") as grants:
        with pytest.raises(InvalidRequest, match="2 locks are held together"):
            present(grants)


def test_of_several_grants_the_one_that_guards_the_resource_is_presented(locks: holdfast.Client) -> None:
    with locks.lock_all("a", "b") as grants:
        assert present(grants, "b") == Presented("b", grants["b"].token)
        with pytest.raises(InvalidRequest, match=r"grants\[name\]"):
            present(grants, "c")
        assert present(grants["a"], "c") == Presented("c", grants["a"].token)


def test_a_released_grant_is_refused_before_anything_is_sent(locks: holdfast.Client) -> None:
    grant = locks.lock("a").acquire()
    grant.release()

    with pytest.raises(NotHeld):
        present(grant)


def test_a_lost_grant_is_refused_before_anything_is_sent(locks: holdfast.Client) -> None:
    grant = locks.lock("a").acquire()
    locks.break_lock("a", force=True)
    assert grant.lost.wait(30)

    with pytest.raises(LockLost):
        present(grant)


async def test_an_asyncio_grant_is_as_good(name: str) -> None:
    async with aio.connect(f"memory://{name.partition(':')[2]}") as locks, locks.lock("users") as grant:
        assert present(grant) == Presented("users", grant.token)


@pytest.mark.parametrize("bare", [17, "17"])
def test_a_bare_token_needs_a_resource(bare: Any) -> None:
    with pytest.raises(InvalidRequest, match="give the resource"):
        present(bare)
    assert present(bare, "users") == Presented("users", 17)


@pytest.mark.parametrize(
    ("header", "meaning"),
    [
        ("17", (17, False)),
        ("17;shared", (17, True)),
        (" 17 ; shared ", (17, True)),
        ("9007199254740991", (2**53 - 1, False)),
    ],
)
def test_a_header_is_read(header: str, meaning: tuple[int, bool]) -> None:
    assert parse_token(header) == meaning


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "0",
        "-1",
        "+17",
        "1.0",
        "1e3",
        "x",
        "17;SHARED",
        "17;",
        ";shared",
        "17;shared;",
        "9007199254740992",
        "١٧",
        "17\n",
    ],
)
def test_a_wrong_header_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_token(wrong)


@pytest.mark.parametrize("wrong", [0, -1, 2**53, True, 1.0, None, b"17", object()])
def test_what_is_no_token_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest):
        present(wrong, "users")


@pytest.mark.parametrize("wrong", [0, -1, 2**53, True, 1.0, "17"])
def test_what_is_handed_on_is_looked_at_like_a_bare_token(wrong: Any) -> None:
    """It may have come over a queue, and been put together by hand."""
    with pytest.raises(InvalidRequest):
        present(Presented("users", wrong))
    with pytest.raises(InvalidRequest):
        present(Presented("users", 17), "")


def test_a_shared_token_cannot_pass_only_once() -> None:
    with pytest.raises(InvalidRequest, match="once"):
        present("17;shared", "users", once=True)


@pytest.mark.parametrize("key", ["users", "a/b", "gpu//0", "gpu//17", "a'b\"c", "日本語", "x" * 512, "100%", "a b"])
def test_a_resource_survives_its_header(key: str) -> None:
    headers = Presented(key, 17).headers

    assert headers["Fencing-Resource"].isascii()
    assert parse_resource(headers["Fencing-Resource"]) == key


@pytest.mark.parametrize("wrong", ["", "a//b", "a//-1", "a//01", "/a", "a/../b", "a\0b", "a\nb", "x" * 513, "//0"])
def test_what_is_no_resource_key_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidRequest):
        check_resource(wrong)


def test_a_resource_header_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        parse_resource("%ff")


def test_what_was_handed_on_can_be_presented_again_elsewhere() -> None:
    handed_on = Presented("users", 17, shared=True)

    assert present(handed_on) == handed_on
    assert present(handed_on, "other") == Presented("other", 17, shared=True)

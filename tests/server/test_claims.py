"""Claims on the wire: granted, in line, refused, and told when that changes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.server.conftest import Speak
from tests.servers.lock_server import Wire


@pytest.fixture
def name() -> str:
    return f"test/{uuid4().hex}"


def holder(wire: Wire, name: str, *options: str | int) -> str:
    """Take a lock for a session of its own; the claim."""
    claim = f"{wire.open()}-1"
    assert wire("HF.ACQUIRE", claim, name, *options)[0] == "granted"
    return claim


def as_map(flat: list[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_a_free_lock_is_granted_with_a_token(wire: Wire, name: str) -> None:
    session = wire.open()

    word, token, slot, hold_left = wire("HF.ACQUIRE", f"{session}-1", name)

    assert (word, slot, hold_left) == ("granted", None, None)
    assert 0 < token < 2**53


def test_tokens_grow(wire: Wire, name: str) -> None:
    session = wire.open()
    tokens = []
    for number in range(5):
        tokens.append(wire("HF.ACQUIRE", f"{session}-{number}", name)[1])
        wire("HF.RELEASE", f"{session}-{number}")

    assert tokens == sorted(set(tokens))


def test_the_same_claim_again_is_the_same_grant(wire: Wire, name: str) -> None:
    session = wire.open()
    first = wire("HF.ACQUIRE", f"{session}-1", name)

    assert wire("HF.ACQUIRE", f"{session}-1", name) == first


def test_a_claim_that_does_not_wait_is_told_who_holds(wire: Wire, speak: Speak, name: str) -> None:
    claim = holder(speak(), name, "NOTE", "grüße", "OWNER", "o1", "THREAD", "t1")
    wire.open()

    word, blocker = wire("HF.ACQUIRE", "*", name, "WAIT", 0)

    assert word == "refused"
    owner = f"{claim.removesuffix('-1')}/o1"
    assert (blocker["claim"], blocker["note"], blocker["owner"], blocker["thread"]) == (claim, "grüße", owner, "t1")


def test_a_refused_claim_leaves_nothing_behind(wire: Wire, speak: Speak, name: str) -> None:
    holder(speak(), name)
    session = wire.open()
    wire("HF.ACQUIRE", f"{session}-1", name, "WAIT", 0)

    assert wire("HF.LOOK", f"{session}-1") == ["gone", "the engine does not know it"]
    assert wire("HF.INSPECT", name)["waiters"] == []


def test_a_release_is_pushed_to_the_next_in_line(wire: Wire, speak: Speak, name: str) -> None:
    first = speak()
    claim = holder(first, name)
    session = wire.open()
    assert wire("HF.ACQUIRE", f"{session}-1", name)[:2] == ["queued", 1]

    first("HF.RELEASE", claim)

    what, granted, token, slot, hold_left = wire.push()
    assert (what, granted, slot, hold_left) == ("hf.granted", f"{session}-1", None, None)
    assert wire("HF.LOOK", f"{session}-1") == ["granted", token, None, None]


def test_a_connection_with_a_claim_in_line_does_other_things_meanwhile(wire: Wire, speak: Speak, name: str) -> None:
    holder(speak(), name)
    session = wire.open()
    wire("HF.ACQUIRE", f"{session}-1", name)

    assert wire("HF.ACQUIRE", f"{session}-2", f"{name}-other")[0] == "granted"
    assert wire("PING") == "PONG"


def test_a_quiet_connection_gets_no_pushes(speak: Speak, name: str) -> None:
    first, quiet = speak(), speak(3)
    claim = holder(first, name)
    session = quiet.open(60_000, "QUIET")
    quiet("HF.ACQUIRE", f"{session}-1", name)

    first("HF.RELEASE", claim)

    assert quiet("HF.LOOK", f"{session}-1")[0] == "granted"
    assert quiet.pushes == []


def test_the_side_connection_hears_what_the_main_one_waits_for(speak: Speak, name: str) -> None:
    first, main, side = speak(), speak(), speak(3)
    claim = holder(first, name)
    session = main.open()
    side("HF.RESUME", session, main.secret, "SIDE")
    main("HF.ACQUIRE", f"{session}-1", name)

    first("HF.RELEASE", claim)

    assert side.push()[:2] == ["hf.granted", f"{session}-1"]


def test_a_blocking_acquire_is_answered_when_it_is_granted(speak: Speak, name: str) -> None:
    first, second = speak(), speak()
    claim = holder(first, name)
    session = second.open()
    second.send("HF.ACQUIRE", f"{session}-1", name, "WAIT", 20_000, "BLOCK")
    second.send("PING")
    while not as_map(first("HF.INSPECT", name))["waiters"]:
        continue

    first("HF.RELEASE", claim)

    assert second.reply()[0] == "granted"
    assert second.reply() == "PONG"


def test_a_blocking_acquire_whose_id_the_server_chose_brings_it_along(speak: Speak, name: str) -> None:
    first, second = speak(), speak()
    claim = holder(first, name)
    session = second.open()
    second.send("HF.ACQUIRE", "*", name, "WAIT", 20_000, "BLOCK")
    while not as_map(first("HF.INSPECT", name))["waiters"]:
        continue

    first("HF.RELEASE", claim)

    granted = second.reply()
    assert granted[4].startswith(f"{session}-")
    assert second("HF.RELEASE", granted[4]) == "OK"


def test_a_blocking_acquire_whose_wait_is_over_is_refused_and_leaves_nothing_behind(speak: Speak, name: str) -> None:
    first, second = speak(), speak()
    claim = holder(first, name)
    session = second.open()

    word, blocker = second("HF.ACQUIRE", f"{session}-1", name, "WAIT", 50, "BLOCK")

    assert (word, as_map(blocker)["claim"]) == ("refused", claim)
    assert as_map(first("HF.INSPECT", name))["waiters"] == []


def test_a_wait_that_is_over_is_pushed(wire: Wire, speak: Speak, name: str) -> None:
    holder(speak(), name)
    session = wire.open()
    wire("HF.ACQUIRE", f"{session}-1", name, "WAIT", 50)

    assert wire.push() == ["hf.gone", f"{session}-1", "its wait is over"]


def test_a_blocked_claim_that_is_withdrawn_over_the_side_connection_is_answered(speak: Speak, name: str) -> None:
    first, main, side = speak(), speak(), speak()
    holder(first, name)
    session = main.open()
    side("HF.RESUME", session, main.secret, "SIDE")
    main.send("HF.ACQUIRE", f"{session}-1", name, "BLOCK")
    while not as_map(first("HF.INSPECT", name))["waiters"]:
        continue

    side("HF.LEAVE", f"{session}-1")

    assert main.reply() == ["gone", "it was withdrawn"]


def test_a_blocked_claim_whose_session_ends_is_answered(speak: Speak, name: str) -> None:
    holder(speak(), name)
    second = speak()
    session = second.open(200)

    assert second("HF.ACQUIRE", f"{session}-1", name, "BLOCK") == ["over"]
    assert second("PING") == "PONG"


def test_a_blocked_client_that_goes_away_keeps_its_place_for_its_return(speak: Speak, name: str) -> None:
    first, gone, back = speak(), speak(), speak()
    claim = holder(first, name)
    session = gone.open()
    gone.send("HF.ACQUIRE", f"{session}-1", name, "BLOCK")
    while not as_map(first("HF.INSPECT", name))["waiters"]:
        continue
    gone.close()
    back("HF.RESUME", session, gone.secret)
    back.send("HF.ACQUIRE", f"{session}-1", name, "BLOCK")

    first("HF.RELEASE", claim)

    assert back.reply()[0] == "granted"


def test_readers_share_and_a_writer_waits(wire: Wire, speak: Speak, name: str) -> None:
    session = wire.open()
    assert wire("HF.ACQUIRE", f"{session}-1", name, "SHARED", "OWNER", "a")[0] == "granted"
    assert wire("HF.ACQUIRE", f"{session}-2", name, "SHARED", "OWNER", "b")[0] == "granted"
    assert wire("HF.ACQUIRE", f"{session}-3", name, "OWNER", "c")[:2] == ["queued", 1]


def test_a_subtree_covers_what_lies_under_it(wire: Wire, speak: Speak, name: str) -> None:
    holder(speak(), name, "SUBTREE")
    wire.open()

    assert wire("HF.ACQUIRE", "*", f"{name}/below", "WAIT", 0)[0] == "refused"


def test_permits_have_slots_and_a_limit(wire: Wire, name: str) -> None:
    session = wire.open()
    slots = [wire("HF.ACQUIRE", f"{session}-{n}", name, "LIMIT", 2, "OWNER", n, "WAIT", 0) for n in range(3)]

    assert [reply[0] for reply in slots] == ["granted", "granted", "refused"]
    assert [reply[2] for reply in slots[:2]] == [0, 1]
    assert wire("HF.ACQUIRE", f"{session}-9", name, "LIMIT", 3, "WAIT", 0) == ["limit", 2]


def test_an_owner_enters_again_with_the_same_token(wire: Wire, name: str) -> None:
    session = wire.open()
    first = wire("HF.ACQUIRE", f"{session}-1", name, "OWNER", "o")

    assert wire("HF.ACQUIRE", f"{session}-2", name, "OWNER", "o", "REENTRANT") == first


@pytest.mark.parametrize("owner", ["{}", "{}/o"])
def test_nobody_enters_again_as_the_owner_of_another_session(wire: Wire, speak: Speak, name: str, owner: str) -> None:
    other = speak()
    session = other.open()
    named = owner.format(session)
    assert other("HF.ACQUIRE", f"{session}-1", name, "OWNER", named)[0] == "granted"
    mine = wire.open()

    word, blocker = wire("HF.ACQUIRE", f"{mine}-1", name, "OWNER", named, "REENTRANT", "WAIT", 0)

    assert (word, blocker["owner"]) == ("refused", named)


def test_an_owner_that_names_its_session_is_taken_as_it_is(wire: Wire, name: str) -> None:
    session = wire.open()
    first = wire("HF.ACQUIRE", f"{session}-1", name, "OWNER", "o")

    assert wire("HF.ACQUIRE", f"{session}-2", name, "OWNER", f"{session}/o", "REENTRANT") == first


def test_a_deadlock_is_refused_and_names_the_cycle(wire: Wire, name: str) -> None:
    session = wire.open(60_000, "APP", "billing")
    wire("HF.ACQUIRE", f"{session}-1", f"{name}a", "OWNER", "a")
    wire("HF.ACQUIRE", f"{session}-2", f"{name}b", "OWNER", "b")
    wire("HF.ACQUIRE", f"{session}-3", f"{name}b", "OWNER", "a")

    word, cycle = wire("HF.ACQUIRE", f"{session}-4", f"{name}a", "OWNER", "b")

    assert word == "deadlock"
    assert {(link["owner"], link["app"]) for link in cycle} == {(f"{session}/{one}", "billing") for one in "ab"}


def test_a_hold_ends_after_max_hold(wire: Wire, name: str) -> None:
    session = wire.open()
    _, _, _, hold_left = wire("HF.ACQUIRE", f"{session}-1", name, "MAXHOLD", 100)
    assert 0 < hold_left <= 100

    assert wire.push() == ["hf.gone", f"{session}-1", "it was held longer than max_hold"]
    assert wire("HF.RELEASE", f"{session}-1") == ["gone", "it was held longer than max_hold"]


def test_a_grant_is_handed_over_once(wire: Wire, speak: Speak, name: str) -> None:
    sender = speak()
    claim = holder(sender, name)
    token = sender("HF.LOOK", claim)[1]
    assert sender("HF.HANDOVER", claim, "ab" * 32) == "OK"
    session = wire.open()

    assert wire("HF.ADOPT", f"{session}-1", claim, "cd" * 32, name)[0] == "gone"
    word, new_token, _, _ = wire("HF.ADOPT", f"{session}-2", claim, "ab" * 32, name)

    assert (word, new_token > token) == ("granted", True)
    assert sender("HF.RELEASE", claim) == ["gone", "it was handed over"]
    assert wire("HF.ADOPT", f"{session}-3", claim, "ab" * 32, name)[0] == "gone"


def test_an_adopted_hold_ends_after_the_adopter_s_max_hold(wire: Wire, speak: Speak, name: str) -> None:
    session, other, third = wire.open(), speak(), speak()
    receiver, next_in_line = other.open(), third.open()
    wire("HF.ACQUIRE", f"{session}-1", name)
    wire("HF.HANDOVER", f"{session}-1", "ticket")

    word, _, _, left = other("HF.ADOPT", f"{receiver}-1", f"{session}-1", "ticket", name, "MAXHOLD", 50)

    assert (word, 0 < left <= 50) == ("granted", True)
    assert third("HF.ACQUIRE", f"{next_in_line}-1", name, "BLOCK", "WAIT", 20_000)[0] == "granted"
    assert other("HF.RELEASE", f"{receiver}-1") == ["gone", "it was held longer than max_hold"]


def test_a_claim_that_stands_in_line_adopts_nothing_and_keeps_its_place(wire: Wire, speak: Speak, name: str) -> None:
    sender = speak()
    claim = holder(sender, name)
    assert sender("HF.HANDOVER", claim, "ab" * 32) == "OK"
    session = wire.open()
    wire("HF.ACQUIRE", f"{session}-1", name)

    assert wire("HF.ADOPT", f"{session}-1", claim, "ab" * 32, name)[0] == "gone"

    assert wire("HF.LOOK", f"{session}-1")[:2] == ["queued", 1]
    assert sender("HF.LOOK", claim)[0] == "granted"


def test_a_holder_hears_that_its_lock_was_broken(wire: Wire, speak: Speak, name: str) -> None:
    claim = holder(wire, name)

    assert speak()("HF.BREAK", name) == [claim]

    assert wire.push() == ["hf.gone", claim, "an operator broke it"]
    assert wire("HF.RENEW", "*")[3] == [[claim, "an operator broke it"]]
    assert wire("HF.RELEASE", claim) == ["gone", "an operator broke it"]
    assert wire("HF.INSPECT", name)["holders"] == []


def test_a_broken_lock_that_is_not_given_back_is_gone_after_one_ttl(speak: Speak, name: str) -> None:
    stubborn, second = speak(3), speak(3)
    session, other = stubborn.open(300), second.open()
    stubborn("HF.ACQUIRE", f"{session}-1", name)
    second("HF.ACQUIRE", f"{other}-1", name)

    second("HF.BREAK", name)

    while not second.pushes:
        stubborn("HF.RENEW", session)
        second("PING")
    assert second.push()[:2] == ["hf.granted", f"{other}-1"]


def test_a_forced_break_is_at_once(wire: Wire, speak: Speak, name: str) -> None:
    holder(speak(), name)
    session = wire.open()
    wire("HF.ACQUIRE", f"{session}-1", name)

    wire("HF.BREAK", name, "FORCE")

    assert wire("HF.LOOK", f"{session}-1")[0] == "granted"


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (("HF.ACQUIRE", "*"), "ERR"),
        (("HF.ACQUIRE", "*", ""), "HFINVALID"),
        (("HF.ACQUIRE", "*", "a//b"), "HFINVALID"),
        (("HF.ACQUIRE", "*", "."), "HFINVALID"),
        (("HF.ACQUIRE", "*", ".."), "HFINVALID"),
        (("HF.ACQUIRE", "*", "a\nb"), "HFINVALID"),
        (("HF.ACQUIRE", "*", "x" * 513), "HFINVALID"),
        (("HF.ACQUIRE", "*", b"\xff\xfe"), "HFINVALID"),
        (("HF.ACQUIRE", "*", b"\xed\xa0\x80"), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "COLOUR", "red"), "ERR"),
        (("HF.ACQUIRE", "*", "k", "NOTE"), "ERR"),
        (("HF.ACQUIRE", "*", "k", "NOTE", "a", "NOTE", "b"), "ERR"),
        (("HF.ACQUIRE", "*", "k", "NOTE", "x" * 1025), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "NOTE", b"\xff"), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "LIMIT", 0), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "LIMIT", 2, "SHARED"), "ERR"),
        (("HF.ACQUIRE", "*", "k", "LIMIT", 2, "KIND", "holdfast.lock"), "ERR"),
        (("HF.ACQUIRE", "*", "k", "KIND", "x.semaphore"), "ERR"),
        (("HF.ACQUIRE", "*", "k", "WAIT", "-1"), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "WAIT", "1e3"), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "WAIT", "9" * 16), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "MAXHOLD", 0), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "KIND", "lock"), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "KIND", "holdfast."), "HFINVALID"),
        (("HF.ACQUIRE", "*", "k", "KIND", "cell:holdfast.cell"), "HFINVALID"),
        (("HF.ACQUIRE", "nodash", "k"), "HFINVALID claim 'nodash':"),
        (("HF.RELEASE", "short-1"), "HFINVALID claim 'short-1':"),
        (("HF.ADOPT", "*", "nodash", "ticket", "k"), "HFINVALID claim 'nodash':"),
        (("HF.ACQUIRE", "sssssssss-", "k"), "HFINVALID"),
        (("HF.ACQUIRE", "sssssssss-x y", "k"), "HFINVALID"),
        (("HF.RELEASE",), "ERR"),
        (("HF.HANDOVER", "*", "a", "b"), "ERR"),
        (("HF.NOTHING",), "ERR"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_a_word_for_it(wire: Wire, command: tuple[str, ...], word: str) -> None:
    wire.open()

    assert str(wire(*command)).startswith(f"{word} ")


def test_what_is_in_use_without_a_limit_has_none_and_the_other_way_round(wire: Wire, name: str) -> None:
    session = wire.open()
    wire("HF.ACQUIRE", f"{session}-1", name, "KIND", "x.plain")
    wire("HF.ACQUIRE", f"{session}-2", name, "KIND", "x.counted", "LIMIT", 2)

    assert wire("HF.ACQUIRE", f"{session}-3", name, "KIND", "x.plain", "LIMIT", 2, "OWNER", "a") == ["limit", 0]
    assert wire("HF.ACQUIRE", f"{session}-4", name, "KIND", "x.counted", "OWNER", "a") == ["limit", 2]


def test_option_names_are_not_case_sensitive(wire: Wire, name: str) -> None:
    wire.open()

    assert wire("hf.acquire", "*", name, "shared", "Note", "x")[0] == "granted"


@pytest.mark.parametrize(
    "other", [("another",), ("NAME", "SHARED"), ("NAME", "SUBTREE"), ("NAME", "KIND", "other.lock")]
)
def test_the_id_of_a_claim_on_another_lock_is_refused(wire: Wire, name: str, other: tuple[str, ...]) -> None:
    session = wire.open()
    claim = f"{session}-1"
    token = wire("HF.ACQUIRE", claim, name)[1]

    refused = str(wire("HF.ACQUIRE", claim, other[0].replace("NAME", name), *other[1:]))

    assert refused.startswith("HFINVALID")
    assert name in refused
    assert wire("HF.ACQUIRE", claim, name)[1] == token


def test_a_claim_that_holds_another_lock_adopts_nothing(wire: Wire, speak: Speak, name: str) -> None:
    session, rival = wire.open(), speak()
    claim, holder = f"{session}-1", f"{rival.open()}-1"
    wire("HF.ACQUIRE", claim, name)
    rival("HF.ACQUIRE", holder, f"{name}/other")
    rival("HF.HANDOVER", holder, "ticket")

    assert str(wire("HF.ADOPT", claim, holder, "ticket", f"{name}/other")).startswith("HFINVALID")

    assert wire("HF.ADOPT", f"{session}-2", holder, "ticket", f"{name}/other")[0] == "granted"

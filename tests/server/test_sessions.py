"""Sessions on the wire: who speaks for one, and that nobody else does."""

from __future__ import annotations

import secrets
from uuid import uuid4

import pytest

from tests.server.conftest import Speak
from tests.servers.lock_server import Wire


def new_ids() -> tuple[str, str]:
    return "s" + secrets.token_hex(6), secrets.token_urlsafe(16)


def test_a_session_opens_with_the_ids_that_the_client_chose(wire: Wire) -> None:
    session, secret = new_ids()

    assert wire("HF.OPEN", session, secret, 5000) == ["open", 5000, session, None]


def test_an_open_whose_answer_got_lost_may_be_repeated(wire: Wire, speak: Speak) -> None:
    session, secret = new_ids()
    wire("HF.OPEN", session, secret, 5000)

    assert speak()("HF.OPEN", session, secret, 5000) == ["open", 5000, session, None]


def test_a_session_in_use_is_not_opened_with_another_secret(wire: Wire, speak: Speak) -> None:
    session = wire.open()

    assert str(speak()("HF.OPEN", session, secrets.token_urlsafe(16), 5000)).startswith("HFSECRET")


def test_a_session_is_not_resumed_with_another_secret(wire: Wire, speak: Speak) -> None:
    session = wire.open()

    assert str(speak()("HF.RESUME", session, secrets.token_urlsafe(16))).startswith("HFSECRET")


def test_a_claim_of_another_session_cannot_be_released(wire: Wire, speak: Speak) -> None:
    session, name = wire.open(), uuid4().hex
    wire("HF.ACQUIRE", f"{session}-1", name)
    thief = speak()
    thief.open()

    assert str(thief("HF.RELEASE", f"{session}-1")).startswith("HFDETACHED")
    assert str(thief("HF.LEAVE", f"{session}-1")).startswith("HFDETACHED")
    assert str(thief("HF.LOOK", f"{session}-1")).startswith("HFDETACHED")
    assert str(thief("HF.ACQUIRE", f"{session}-1", name)).startswith("HFDETACHED")
    assert str(thief("HF.CLOSE", session)).startswith("HFDETACHED")
    assert wire("HF.LOOK", f"{session}-1")[0] == "granted"


def test_a_claim_of_no_session_at_all_is_over(wire: Wire) -> None:
    assert wire("HF.ACQUIRE", "nosuchsession-1", "k") == ["over"]
    assert wire("HF.RENEW", "nosuchsession") == ["over"]
    assert wire("HF.RESUME", "nosuchsession", secrets.token_urlsafe(16)) == ["over"]


def test_resuming_closes_the_former_main_connection(speak: Speak) -> None:
    former, next_one = speak(3), speak(3)
    session = former.open()

    assert next_one("HF.RESUME", session, former.secret) == ["open", 60_000, session, None]

    assert former.push() == ["hf.detached", session, "another connection speaks for it now"]
    assert list(former.rest()) == []


def test_what_was_held_is_still_held_after_a_resume(speak: Speak) -> None:
    former, next_one, name = speak(), speak(), uuid4().hex
    session = former.open()
    granted = former("HF.ACQUIRE", f"{session}-1", name)

    next_one("HF.RESUME", session, former.secret)

    assert next_one("HF.ACQUIRE", f"{session}-1", name) == granted
    assert next_one("HF.RELEASE", f"{session}-1") == "OK"


def test_a_side_connection_leaves_the_main_one_alone(speak: Speak) -> None:
    main, side = speak(), speak()
    session = main.open()

    side("HF.RESUME", session, main.secret, "SIDE")

    assert main("HF.RENEW", session)[0] == "open"
    assert side("HF.RENEW", session)[0] == "open"


def test_a_side_connection_makes_no_claims(speak: Speak) -> None:
    main, side, name = speak(), speak(), uuid4().hex
    session = main.open()
    side("HF.RESUME", session, main.secret, "SIDE")

    assert str(side("HF.ACQUIRE", f"{session}-1", name)).startswith("HFDETACHED")
    assert str(side("HF.ACQUIRE", "*", name)).startswith("HFDETACHED")
    assert str(side("HF.RELEASE", f"{session}-1")).startswith("HFDETACHED")


def test_a_side_connection_withdraws(speak: Speak) -> None:
    main, side, name = speak(), speak(), uuid4().hex
    session = main.open()
    main("HF.ACQUIRE", f"{session}-1", name)
    side("HF.RESUME", session, main.secret, "SIDE")

    assert side("HF.LEAVE", f"{session}-1") == "OK"
    assert side("HF.INSPECT", name) == ["kind", "holdfast.lock", "name", name, "limit", 0, "holders", [], "waiters", []]


def test_a_late_acquire_finds_that_it_was_withdrawn_over_the_side_connection(speak: Speak) -> None:
    main, side, name = speak(), speak(), uuid4().hex
    session = main.open()
    side("HF.RESUME", session, main.secret, "SIDE")

    side("HF.LEAVE", f"{session}-1", "UNANSWERED")

    assert main("HF.ACQUIRE", f"{session}-1", name) == ["gone", "it was withdrawn"]


def test_a_withdrawal_over_the_main_connection_leaves_nothing_to_remember(wire: Wire) -> None:
    session, name = wire.open(), uuid4().hex

    wire("HF.LEAVE", f"{session}-1", "UNANSWERED")

    assert wire("HF.ACQUIRE", f"{session}-1", name)[0] == "granted"


def test_a_session_without_heartbeats_ends_and_its_lock_goes_to_the_next(speak: Speak) -> None:
    dying, waiting, name = speak(3), speak(3), uuid4().hex
    dead, alive = dying.open(200), waiting.open()
    dying("HF.ACQUIRE", f"{dead}-1", name)
    assert waiting("HF.ACQUIRE", f"{alive}-1", name)[0] == "queued"

    assert waiting.push()[:2] == ["hf.granted", f"{alive}-1"]
    assert dying.push()[:2] == ["hf.over", dead]
    assert dying("HF.LOOK", f"{dead}-1") == ["over"]
    assert dying("HF.RELEASE", f"{dead}-1") == ["gone", "its session ran out"]
    assert dying("HF.LEAVE", f"{dead}-1") == "OK"


def test_heartbeats_keep_a_session(wire: Wire, speak: Speak) -> None:
    session, name = wire.open(400), uuid4().hex
    wire("HF.ACQUIRE", f"{session}-1", name)
    other = speak()
    rival = other.open()

    # The rival stands in line, each time until the server says that its wait is over: no sleep is needed here.
    for number in range(6):
        wire("HF.RENEW", session)
        assert other("HF.ACQUIRE", f"{rival}-{number}", name, "WAIT", 150, "BLOCK")[0] == "refused"

    assert wire("HF.RELEASE", f"{session}-1") == "OK"


def test_closing_a_session_frees_everything_at_once(wire: Wire, speak: Speak) -> None:
    session, prefix = wire.open(), uuid4().hex
    for number in range(600):
        wire.send("HF.ACQUIRE", f"{session}-{number}", f"{prefix}/{number}")
    assert [wire.reply()[0] for _ in range(600)] == ["granted"] * 600

    assert wire("HF.CLOSE", session) == "OK"

    other = speak()
    rival = other.open()
    for number in range(600):
        assert other("HF.ACQUIRE", f"{rival}-{number}", f"{prefix}/{number}", "WAIT", 0)[0] == "granted"


def test_closing_twice_is_harmless(wire: Wire) -> None:
    session = wire.open()
    wire("HF.CLOSE", session)

    assert wire("HF.CLOSE", session) == "OK"
    assert wire("HF.RENEW", session) == ["over"]


def test_a_star_stands_for_the_session_that_ran_out(wire: Wire) -> None:
    session = wire.open(200)
    assert wire.push()[:2] == ["hf.over", session]

    for command in (("HF.RENEW",), ("HF.FETCH", "w", 0), ("HF.WATCH", "w", ""), ("HF.CLOSE",), ("HF.UNWATCH", "w")):
        word, *rest = command
        assert wire(word, "*", *rest) == wire(word, session, *rest), word
    assert wire("HF.RENEW", "*") == ["over"]

    wire.open()
    assert wire("HF.RENEW", "*")[0] == "open"


def test_where_there_never_was_a_session_a_star_says_so(wire: Wire) -> None:
    assert str(wire("HF.RENEW", "*")).startswith("HFDETACHED this connection speaks for no session")
    wire.open()
    wire("HF.CLOSE", "*")
    assert wire("HF.RENEW", "*") == ["over"]

    wire("RESET")

    assert str(wire("HF.RENEW", "*")).startswith("HFDETACHED this connection speaks for no session")


def test_whoever_kept_an_ended_session_s_connection_has_no_part_in_a_new_one_of_that_id(speak: Speak) -> None:
    stale, fresh, name = speak(3), speak(3), uuid4().hex
    session, secret = new_ids()
    stale("HF.OPEN", session, secrets.token_urlsafe(16), 100, "SIDE")
    assert stale.push()[:2] == ["hf.over", session]

    fresh("HF.OPEN", session, secret, 60_000)
    fresh("HF.ACQUIRE", f"{session}-1", name)

    assert str(stale("HF.LEAVE", f"{session}-1")).startswith("HFDETACHED")


@pytest.mark.parametrize(
    ("session", "secret", "ttl"),
    [
        ("short", "x" * 22, 5000),
        ("with-dash-in-it", "x" * 22, 5000),
        ("s" * 65, "x" * 22, 5000),
        ("s" * 12, "x" * 21, 5000),
        ("s" * 12, "x" * 22, 99),
        ("s" * 12, "x" * 22, 86_400_001),
        ("s" * 12, "x" * 22, "5s"),
        ("s" * 12, "x" * 22, "-1"),
        ("s" * 12, "x" * 22, "5000.0"),
        ("ſession1", "x" * 22, 5000),
    ],
)
def test_a_session_that_breaks_a_rule_is_refused(wire: Wire, session: str, secret: str, ttl: int | str) -> None:
    assert str(wire("HF.OPEN", session, secret, ttl)).startswith("HFINVALID")


def test_a_secret_is_never_part_of_an_error(wire: Wire) -> None:
    secret = "too short: hunter2"

    assert "hunter2" not in str(wire("HF.OPEN", "*", secret, 5000))

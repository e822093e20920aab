"""What a confirmed heartbeat proves, if the follower that confirmed it dies before its next word to the leader."""

from __future__ import annotations

import itertools

from holdfast.engines.zookeeper.life import MOST_SHARE, PING_SHARE, SHARE, Grant, Life, Request, leader_knows

NEGOTIATED = 1.0
BEAT = NEGOTIATED * SHARE / 3


def leader_counts_from(requests: list[float], ping_every: float, first_ping: float) -> float:
    """What a leader knows by its pings alone: the first request is its own, the others come with the next ping."""
    known, told, now = requests[0], 1, first_ping
    while now < requests[-1]:
        arrived = sum(request <= now for request in requests)
        if arrived > told:
            known, told = max(known, now), arrived
        now += ping_every
    return known


def test_no_leader_counts_from_earlier_than_what_is_taken_for_known() -> None:
    ping_every = 8
    for gaps in itertools.product((1, 3, 7, 8, 9, 15, 20), repeat=4):
        requests = list(itertools.accumulate((0.0, *gaps)))
        taken = leader_knows([Request(at, at) for at in requests], ping_every)
        worst = min(
            leader_counts_from(requests, ping_every, first + shift)
            for first in range(ping_every + 1)
            for shift in (-0.001, 0.0, 0.001)
        )
        assert taken <= worst + 0.01, (gaps, taken, worst)


def test_a_request_that_took_long_to_arrive_is_not_taken_for_an_early_one() -> None:
    """Sent regularly, but the second one arrived at the server together with the third."""
    requests = [Request(0.0, 0.0), Request(0.1, 0.1), Request(0.3, 0.49), Request(0.5, 0.5)]

    assert leader_knows(requests, 0.25) == 0.1


def test_heartbeats_in_time_are_good_for_their_full_share() -> None:
    life = Life(0.0, 0.01, NEGOTIATED, 0.0)

    for number in range(1, 30):
        sent = number * BEAT
        assert life.confirm(Request(sent, sent + 0.02), NEGOTIATED, 0.0) == NEGOTIATED * SHARE


def test_a_heartbeat_after_a_gap_is_good_no_longer_than_the_one_before_it() -> None:
    life = Life(0.0, 0.01, NEGOTIATED, 0.0)
    life.confirm(Request(BEAT, BEAT + 0.01), NEGOTIATED, 0.0)
    late = BEAT + 0.5

    good = life.confirm(Request(late, late + 0.01), NEGOTIATED, 0.0)

    assert late + good <= BEAT + NEGOTIATED * MOST_SHARE
    after = late + 0.01 + NEGOTIATED * PING_SHARE
    for sent in (late + 0.1, late + 0.2, after + 0.01):
        good = life.confirm(Request(sent, sent + 0.01), NEGOTIATED, 0.0)
    assert good == NEGOTIATED * SHARE


def test_a_server_that_took_the_session_on_told_the_leader_of_that() -> None:
    life = Life(0.0, 0.01, NEGOTIATED, 0.0)
    attached_at = 0.6

    good = life.confirm(Request(0.61, 0.62), NEGOTIATED, attached_at)

    assert good == NEGOTIATED * SHARE


def test_of_two_answers_that_are_read_in_another_order_the_later_request_counts() -> None:
    life = Life(0.0, 0.01, NEGOTIATED, 0.0)
    life.confirm(Request(0.2, 0.22), NEGOTIATED, 0.0)
    life.confirm(Request(0.1, 0.23), NEGOTIATED, 0.0)

    assert life.good_until(None) == 0.2 + NEGOTIATED * SHARE


def test_a_shorter_session_counts_until_a_heartbeat_over_its_connection_is_confirmed() -> None:
    life = Life(0.0, 0.01, NEGOTIATED, 0.0)
    life.confirm(Request(0.1, 0.12), NEGOTIATED, 0.0)
    shorter = Grant(0.3, NEGOTIATED / 5)

    assert life.good_until(shorter) == 0.3 + NEGOTIATED / 5 * SHARE
    life.confirm(Request(0.31, 0.32), NEGOTIATED / 5, 0.3)
    assert life.good_until(shorter) == 0.31 + NEGOTIATED / 5 * SHARE

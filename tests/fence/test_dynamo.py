"""DynamoFence on moto's server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.errors import StaleToken
from holdfast.fence import DynamoFence
from tests.servers.moto import MotoServer

LARGEST = 2**53 - 1


@pytest.fixture
def client(moto_server: MotoServer) -> Iterator[Any]:
    made = moto_server.client("dynamodb")
    yield made
    made.close()


@pytest.fixture
def fence(client: Any) -> DynamoFence:
    made = DynamoFence(client)
    made.create()
    return made


@pytest.fixture
def table(client: Any, name: str) -> str:
    made = name.replace(":", "-")
    client.create_table(
        TableName=made,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    return made


def item(value: str) -> dict[str, Any]:
    return {"id": {"S": "7"}, "value": {"S": value}}


def stored(client: Any, table: str) -> str | None:
    found = client.get_item(TableName=table, Key={"id": {"S": "7"}}, ConsistentRead=True).get("Item")
    return None if found is None else found["value"]["S"]


def test_a_stale_token_writes_nothing_and_says_what_was_seen(
    fence: DynamoFence, client: Any, table: str, name: str
) -> None:
    fence.put(table, item("of B"), 18, resource=name)

    with pytest.raises(StaleToken) as stale:
        fence.put(table, item("of A"), 17, resource=name)

    assert (stale.value.presented, stale.value.highest, stale.value.resource) == (17, 18, name)
    assert stored(client, table) == "of B"


def test_an_equal_token_passes_and_once_refuses_it(fence: DynamoFence, client: Any, table: str, name: str) -> None:
    fence.put(table, item("1"), 17, resource=name, once=True)
    fence.put(table, item("2"), 17, resource=name)

    with pytest.raises(StaleToken):
        fence.put(table, item("3"), 17, resource=name, once=True)

    assert stored(client, table) == "2"


def test_a_reader_makes_nobody_stale_and_is_refused_after_a_later_writer(
    fence: DynamoFence, table: str, name: str
) -> None:
    fence.put(table, item("1"), "13;shared", resource=name)
    fence.put(table, item("2"), "12;shared", resource=name)
    fence.put(table, item("3"), 14, resource=name)

    with pytest.raises(StaleToken):
        fence.put(table, item("4"), "13;shared", resource=name)


def test_a_fence_outlives_the_item_that_it_guards(fence: DynamoFence, client: Any, table: str, name: str) -> None:
    fence.put(table, item("1"), 17, resource=name)
    fence.delete(table, {"id": {"S": "7"}}, 18, resource=name)

    with pytest.raises(StaleToken):
        fence.put(table, item("2"), 17, resource=name)

    assert stored(client, table) is None


@pytest.mark.parametrize("hostile", ["a'b\"c", "日本語/🔒", "x" * 512, "#token", ":token"])
def test_a_hostile_name_is_fenced_to_the_last_token(fence: DynamoFence, client: Any, table: str, hostile: str) -> None:
    fence.put(table, item("of B"), LARGEST, resource=hostile)

    with pytest.raises(StaleToken) as stale:
        fence.put(table, item("of A"), LARGEST - 1, resource=hostile)

    assert stale.value.highest == LARGEST


def test_a_condition_of_the_caller_that_fails_is_not_taken_for_a_stale_token(
    fence: DynamoFence, client: Any, table: str, name: str
) -> None:
    put = {"TableName": table, "Item": item("1"), "ConditionExpression": "attribute_exists(id)"}

    with pytest.raises(client.exceptions.TransactionCanceledException):
        fence.write([{"Put": put}], 17, resource=name)

    fence.check(16, resource=name)


def test_of_many_first_uses_at_once_the_highest_stays(moto_server: MotoServer, fence: DynamoFence, name: str) -> None:
    start = threading.Barrier(6)
    outcomes: dict[int, str] = {}

    def check(token: int) -> None:
        own = moto_server.client("dynamodb")
        start.wait()
        try:
            DynamoFence(own).check(token, resource=name)
            outcomes[token] = "passed"
        except StaleToken:
            outcomes[token] = "stale"
        own.close()

    threads = [threading.Thread(target=check, args=(token,)) for token in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert outcomes[6] == "passed"
    assert len(outcomes) == 6
    with pytest.raises(StaleToken):
        fence.check(5, resource=name)


def test_creating_the_table_again_changes_nothing(fence: DynamoFence, name: str) -> None:
    fence.check(18, resource=name)

    fence.create()

    with pytest.raises(StaleToken):
        fence.check(17, resource=name)

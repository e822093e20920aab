"""The fence in DynamoDB: the check is one item of the transaction that writes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from holdfast.errors import EngineUnavailable, StaleToken
from holdfast.fence.sql_statements import DEFAULT_TABLE
from holdfast.fence.token import Presented, Token, present

_TRIES = 30
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2


class DynamoFence:
    """Refuses, in DynamoDB, a write under a token lower than one it has seen.

    Give a client of boto3. Tokens are kept in a table of their own (`create` makes it), so that a
    fence outlives the items that it guards.
    """

    def __init__(self, client: Any, table: str = DEFAULT_TABLE) -> None:
        self._client, self.table = client, table

    def __repr__(self) -> str:
        return f"DynamoFence(table={self.table!r})"

    def create(self) -> None:
        """Create the fence's table if it is not there, and wait until it is."""
        with suppress(self._client.exceptions.ResourceInUseException):
            self._client.create_table(
                TableName=self.table,
                BillingMode="PAY_PER_REQUEST",
                KeySchema=[{"AttributeName": "resource", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "resource", "AttributeType": "S"}],
            )
        self._client.get_waiter("table_exists").wait(TableName=self.table, WaiterConfig={"Delay": 1})

    def write(
        self, items: Iterable[Mapping[str, Any]], grant: Token, *, resource: str | None = None, once: bool = False
    ) -> None:
        """Do all of the writes, as `transact_write_items` takes them, or none and raise StaleToken."""
        presented = present(grant, resource, once=once)
        self._transact([self._condition(presented, once), *items], presented)

    def put(
        self, table: str, item: Mapping[str, Any], grant: Token, *, resource: str | None = None, once: bool = False
    ) -> None:
        """Put one item, in DynamoDB's own notation (`{"id": {"S": "7"}}`)."""
        self.write([{"Put": {"TableName": table, "Item": item}}], grant, resource=resource, once=once)

    def delete(
        self, table: str, key: Mapping[str, Any], grant: Token, *, resource: str | None = None, once: bool = False
    ) -> None:
        """Delete one item. The fence stays."""
        self.write([{"Delete": {"TableName": table, "Key": key}}], grant, resource=resource, once=once)

    def check(self, grant: Token, *, resource: str | None = None, once: bool = False) -> None:
        """Remember the token, or raise StaleToken, without a write. A later write has to be checked again."""
        self.write([], grant, resource=resource, once=once)

    def _condition(self, presented: Presented, once: bool) -> dict[str, Any]:
        comparison = "<" if once else "<="
        told: dict[str, Any] = {
            "TableName": self.table,
            "Key": {"resource": {"S": presented.resource}},
            "ConditionExpression": f"attribute_not_exists(#token) OR #token {comparison} :token",
            "ExpressionAttributeNames": {"#token": "token"},
            "ExpressionAttributeValues": {":token": {"N": str(presented.token)}},
        }
        if presented.shared:
            return {"ConditionCheck": told}
        return {"Update": {**told, "UpdateExpression": "SET #token = :token"}}

    def _transact(self, items: list[Mapping[str, Any]], presented: Presented) -> None:
        for attempt in range(_TRIES):
            try:
                self._client.transact_write_items(TransactItems=items)
                return
            except self._client.exceptions.TransactionCanceledException as error:
                reasons = [reason.get("Code") for reason in error.response.get("CancellationReasons", [])]
                if reasons and reasons[0] == "ConditionalCheckFailed":
                    highest = self._highest(presented)
                    raise StaleToken(presented.resource, presented.token, highest) from error
                if "TransactionConflict" not in reasons:
                    raise
            # Another transaction was under way on the same items: nothing was done, so try again.
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2**attempt)))
        raise EngineUnavailable("DynamoDB", f"{_TRIES} transactions in a row met another one", "not done")

    def _highest(self, presented: Presented) -> int:
        found = self._client.get_item(
            TableName=self.table, Key={"resource": {"S": presented.resource}}, ConsistentRead=True
        )
        return int(found["Item"]["token"]["N"])

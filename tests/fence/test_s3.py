"""S3Fence on moto's server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.errors import InvalidRequest, StaleToken
from holdfast.fence import S3Fence
from tests.servers.moto import MotoServer

LARGEST = 2**53 - 1


@pytest.fixture
def client(moto_server: MotoServer) -> Iterator[Any]:
    made = moto_server.client("s3")
    yield made
    made.close()


@pytest.fixture
def bucket(client: Any, name: str) -> str:
    made = name.replace(":", "-")
    client.create_bucket(Bucket=made)
    return made


@pytest.fixture(params=[False, True], ids=["with its line", "plain"])
def fence(request: pytest.FixtureRequest, client: Any, bucket: str) -> S3Fence:
    return S3Fence(client, bucket, plain=request.param)


def test_a_stale_token_changes_nothing_and_says_what_was_seen(fence: S3Fence, bucket: str) -> None:
    fence.write("state", b"of B", 18)

    with pytest.raises(StaleToken) as stale:
        fence.write("state", b"of A", 17)

    assert (stale.value.presented, stale.value.highest, stale.value.resource) == (17, 18, f"s3://{bucket}/state")
    assert fence.read("state") == b"of B"


def test_an_equal_token_passes_and_once_refuses_it(fence: S3Fence) -> None:
    fence.write("state", "1", 17, once=True)
    fence.write("state", "2", 17)

    with pytest.raises(StaleToken):
        fence.write("state", "3", 17, once=True)

    assert fence.read("state") == b"2"


def test_a_reader_makes_nobody_stale_and_is_refused_after_a_later_writer(fence: S3Fence) -> None:
    fence.write("state", "1", "13;shared")
    fence.write("state", "2", "12;shared")
    fence.write("state", "3", 14)

    with pytest.raises(StaleToken):
        fence.write("state", "4", "13;shared")


@pytest.mark.parametrize("key", ["a'b\"c", "日本語/🔒", "x" * 512, "a b+c%20?"])
def test_a_hostile_key_is_fenced_to_the_last_token(fence: S3Fence, key: str) -> None:
    fence.write(key, "of B", LARGEST)

    with pytest.raises(StaleToken) as stale:
        fence.write(key, "of A", LARGEST - 1)

    assert stale.value.highest == LARGEST
    assert fence.read(key) == b"of B"


def test_a_plain_object_is_what_was_written_and_keeps_its_own_metadata(client: Any, bucket: str) -> None:
    S3Fence(client, bucket, plain=True).write("page", "<p>", 17, ContentType="text/html", Metadata={"by": "us"})

    found = client.get_object(Bucket=bucket, Key="page")
    assert (found["Body"].read(), found["ContentType"]) == (b"<p>", "text/html")
    assert found["Metadata"].pop("holdfast-writer")
    assert found["Metadata"] == {"by": "us", "holdfast-token": "17"}


def test_an_object_of_somebody_who_knows_nothing_of_the_fence_is_taken_over(client: Any, bucket: str) -> None:
    fence = S3Fence(client, bucket)
    client.put_object(Bucket=bucket, Key="full", Body=b"before")
    client.put_object(Bucket=bucket, Key="empty", Body=b"")
    assert fence.read("full") == b"before"
    assert fence.read("none") is None

    fence.write("full", "after", 17)
    fence.write("empty", "after", 17)

    assert (fence.read("full"), fence.read("empty")) == (b"after", b"after")


class Delayed:
    """A client that lets somebody else write between its look and its put, once."""

    def __init__(self, client: Any, meanwhile: Any) -> None:
        self._client, self._meanwhile = client, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_object(self, **options: Any) -> Any:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._client.put_object(**options)


@pytest.mark.parametrize("there", [False, True], ids=["a new object", "an object that was there"])
def test_a_write_that_was_overtaken_after_its_look_is_refused(client: Any, bucket: str, there: bool) -> None:
    fence = S3Fence(client, bucket)
    if there:
        fence.write("state", "before", 16)
    late = S3Fence(Delayed(client, lambda: fence.write("state", "of B", 18)), bucket)

    with pytest.raises(StaleToken):
        late.write("state", "of A", 17)

    assert fence.read("state") == b"of B"


def test_content_that_comes_back_to_what_it_was_does_not_let_a_stale_write_pass(client: Any, bucket: str) -> None:
    """An ETag follows the content: compared alone, it would be the same again."""
    fence = S3Fence(client, bucket)
    fence.write("state", "same", 16)
    late = S3Fence(Delayed(client, lambda: fence.write("state", "same", 18)), bucket)

    with pytest.raises(StaleToken):
        late.write("state", "of A", 17)

    assert fence.read("state") == b"same"


class Unanswered(Delayed):
    """A client whose first put is done, but answered as its own retry would be."""

    def put_object(self, **options: Any) -> Any:
        if self._meanwhile is not None:
            self._meanwhile = None
            self._client.put_object(**options)
        return self._client.put_object(**options)


@pytest.mark.parametrize("plain", [False, True])
def test_a_put_whose_answer_was_lost_is_recognised_as_ones_own(client: Any, bucket: str, plain: bool) -> None:
    fence = S3Fence(Unanswered(client, True), bucket, plain=plain)

    fence.write("state", "1", 17, once=True)

    assert fence.read("state") == b"1"


def test_of_many_first_uses_at_once_the_highest_stays(moto_server: MotoServer, bucket: str) -> None:
    start, refused = threading.Barrier(6), []

    def write(token: int) -> None:
        own = moto_server.client("s3")
        start.wait()
        try:
            S3Fence(own, bucket).write("state", str(token), token)
        except StaleToken:
            refused.append(token)
        own.close()

    threads = [threading.Thread(target=write, args=(token,)) for token in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    own = moto_server.client("s3")
    assert S3Fence(own, bucket).read("state") == b"6"
    assert 6 not in refused
    own.close()


def test_a_read_under_a_token_keeps_what_else_is_known_of_the_object(client: Any, bucket: str) -> None:
    fence = S3Fence(client, bucket)
    client.put_object(
        Bucket=bucket, Key="state", Body=b"{}", ContentType="application/json", Metadata={"author": "somebody"}
    )

    assert fence.read("state", 18) == b"{}"

    found = client.head_object(Bucket=bucket, Key="state")
    assert (found["ContentType"], found["Metadata"]["author"]) == ("application/json", "somebody")
    with pytest.raises(StaleToken):
        fence.write("state", b"late", 17)
    with pytest.raises(StaleToken):
        fence.read("state", 17)
    assert fence.read("state") == b"{}"


def test_a_read_under_a_token_makes_the_object_that_a_former_holder_would_make(client: Any, bucket: str) -> None:
    fence = S3Fence(client, bucket)

    assert fence.read("state", 18) == b""

    with pytest.raises(StaleToken):
        fence.write("state", b"late", 17)


def test_a_read_under_a_token_that_was_overtaken_is_made_again(client: Any, bucket: str) -> None:
    fence, other = S3Fence(client, bucket), S3Fence(client, bucket)
    fence.write("state", b"1", 16)
    put = fence._put_if_unchanged

    def late(*args: Any) -> bool:
        fence._put_if_unchanged = put  # type: ignore[method-assign]
        other.write("state", b"2", 17)
        return put(*args)

    fence._put_if_unchanged = late  # type: ignore[assignment,method-assign]

    assert fence.read("state", 18) == b"2"


def test_a_shared_read_makes_nobody_stale(client: Any, bucket: str) -> None:
    fence = S3Fence(client, bucket)
    fence.write("state", b"1", 16)

    assert fence.read("state", "18;shared") == b"1"

    fence.write("state", b"2", 17)


def test_a_plain_object_cannot_be_read_under_a_token(client: Any, bucket: str) -> None:
    with pytest.raises(InvalidRequest, match="ETag"):
        S3Fence(client, bucket, plain=True).read("state", 18)


def test_tokens_alone_can_be_kept_for_a_middleware(client: Any, bucket: str) -> None:
    S3Fence(client, bucket).check(18, resource="users")

    with pytest.raises(StaleToken):
        S3Fence(client, bucket).check(17, resource="users")
    with pytest.raises(InvalidRequest):
        S3Fence(client, bucket, plain=True).check(17, resource="users")

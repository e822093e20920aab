"""Nothing that a URL says before its last `@` is shown."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.cli import exit_codes
from holdfast.engines.registry import OWN
from tests.cli.stage import Stage

WRONG = ["usrzz:pw/zz@127.0.0.1:1", "usrzz:pw?zz@127.0.0.1:1", "usrzz:pwzz@127.0.0.1:1/0?nonsense=1", "usrzz:1/zz@x"]


@pytest.mark.parametrize("scheme", [*OWN, "nonsense"])
def test_a_refused_url_shows_neither_user_nor_password(scheme: str) -> None:
    for rest in WRONG:
        with pytest.raises(holdfast.InvalidRequest) as refused:
            holdfast.connect(f"{scheme}://{rest}").close()
        assert "zz" not in f"{refused.value} {refused.value!r}"


@pytest.mark.parametrize("command", [("serve", "--store"), ("ls", "--url"), ("doctor",), ("verify",), ("bench",)])
@pytest.mark.parametrize("url", ["etcd://usrzz:p/wzz@h", "etcd://usrzz:p?wzz@h", "etc//usrzz:p/wzz@h"])
def test_no_command_shows_what_a_url_says_before_its_last_at_sign(
    stage: Stage, command: tuple[str, ...], url: str
) -> None:
    done = stage.call(*command, url)

    assert done.returncode == exit_codes.BAD_INPUT
    assert "zz" not in done.stdout + done.stderr
    assert "…@h" in done.stderr


def test_a_store_of_the_configuration_file_is_not_shown_either(stage: Stage) -> None:
    config = stage.folder / "server.toml"
    config.write_text('store = ["etcd://usrzz:pwzz@h"]\n')

    done = stage.call("serve", "--config", str(config))

    assert done.returncode == exit_codes.BAD_INPUT
    assert "zz" not in done.stdout + done.stderr

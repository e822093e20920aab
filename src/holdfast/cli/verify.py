"""`holdfast verify TARGET`: faults on real servers, and what is left of the promises."""

from __future__ import annotations

import random
import shlex
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from holdfast.cli import screen, verdict
from holdfast.cli.options import SECONDS, json_option
from holdfast.core.urls import shown
from holdfast.verify import report
from holdfast.verify.faults import FAULTS, choose
from holdfast.verify.performance import Performance
from holdfast.verify.stage import Order, Stage
from holdfast.verify.targets import TARGETS, make_target
from holdfast.verify.verdict import judge
from holdfast.verify.workloads import WORKLOADS

SEEDS = 1_000_000


@dataclass(frozen=True)
class Wish:
    """What the command line asked for."""

    target: str
    faults: str
    seconds: float
    clients: int
    seed: int
    ttl: float | None
    workloads: str
    controls: bool

    @property
    def command(self) -> str:
        """The line that runs it again. The moments at which processes run are chance; everything else is the seed's.

        Without user and password: it is printed, and written into reports.
        """
        target = shown(self.target) if "@" in self.target else self.target
        words = ["holdfast", "verify", target, "--seed", str(self.seed), "--faults", self.faults]
        words += ["--seconds", f"{self.seconds:g}", "--clients", str(self.clients)]
        words += ["--ttl", f"{self.ttl:g}"] if self.ttl is not None else []
        words += ["--workloads", self.workloads] if self.workloads != "all" else []
        return shlex.join(words if self.controls else [*words, "--no-controls"])

    def order(self) -> Order:
        """The same for the stage; InvalidRequest if a fault or workload is unknown."""
        names = list(WORKLOADS) if self.workloads == "all" else _chosen(self.workloads)
        faults = tuple(choose(self.faults.split(",")))
        return Order(
            tuple(names), faults, self.seconds, self.clients, self.seed, self.command, self.ttl, controls=self.controls
        )


def _chosen(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: all, or some of {', '.join(WORKLOADS)}")
    return names


@click.command(short_help="Prove the promises, with faults on real servers.")
@click.argument("target")
@click.option("--faults", default="all", show_default=True, help=f"all, none, or some of {', '.join(FAULTS)}.")
@click.option("--seconds", type=SECONDS, default=30.0, show_default=True, help="How long faults strike.")
@click.option("--clients", type=click.IntRange(2, 64), default=6, show_default=True, help="Client processes.")
@click.option("--seed", type=int, help="Of the faults and of the clients' chances.  [default: a new one]")
@click.option("--ttl", type=SECONDS, help="Of the clients' sessions.  [default: short, the target's own]")
@click.option("--workloads", default="all", show_default=True, help=f"all, or some of {', '.join(WORKLOADS)}.")
@click.option("--controls/--no-controls", default=True, help="Whether the runs that must fail are run too.")
@click.option("--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML report.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the histories in this new folder.")
@json_option
def verify(page: Path | None, keep: Path | None, seed: int | None, as_json: bool, **wished: Any) -> None:
    """Run clients against TARGET, let faults strike, and judge what the clients saw.

    TARGET is the URL of a deployment of your own (faults are the clients' only, and everything is
    done in a namespace of its own), or one of {targets}: then real servers are started on this
    machine.

    Exit code: 0 kept, 1 a promise was broken, 70 the verifier itself is broken (a control that must
    fail did not), 75 not decided.

    \b
    Examples:
      holdfast verify sqlite
      holdfast verify redis --seconds 60 --report redis.html
      holdfast verify redlock --faults pause-client,partition --seed 7
    """
    _check_places(page, keep)
    wish = Wish(seed=random.SystemRandom().randrange(SEEDS) if seed is None else seed, **wished)
    status = screen.console(stderr=True)
    shows: AbstractContextManager[Any] = status.status("") if status.is_terminal else nullcontext()
    with tempfile.TemporaryDirectory(prefix="holdfast-verify-") as temporary, shows as spinner:
        folder = Path(temporary) if keep is None else keep
        folder.mkdir(parents=True, exist_ok=True)
        tell = spinner.update if spinner else lambda text: None
        if not as_json:
            screen.tell(f"seed {wish.seed}: {wish.command}")
        done = perform(wish, folder, tell)
        histories = done.histories()
    found = judge(histories, done.not_tested, done.surprises, done.late)
    if page is not None:
        report.write(found, histories, page)
    if as_json:
        screen.document({**found.as_dict(), "struck": dict(done.struck)})
    else:
        verdict.show(found)
    click.get_current_context().exit(found.exit_code)


def perform(wish: Wish, folder: Path, tell: Any) -> Performance:
    """Run it on its target."""
    order = wish.order()
    return Stage(make_target(wish.target, folder), order, folder, tell).perform()


def _check_places(page: Path | None, keep: Path | None) -> None:
    """Before the run, not after it."""
    if page is not None and not page.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {page.absolute().parent}", param_hint="--report")
    if keep is not None and keep.exists():
        raise click.BadParameter(f"{keep} is there already: name a new folder", param_hint="--keep")


assert verify.help is not None
verify.help = verify.help.replace("{targets}", ", ".join(TARGETS))

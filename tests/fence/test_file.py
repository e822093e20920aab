"""FileFence on real files: across processes, links and cuts at any point."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.errors import InvalidRequest, StaleToken
from holdfast.fence import FileFence, file

FENCE = FileFence()
LARGEST = 2**53 - 1
ROOT = Path(__file__).parents[2]


def test_a_stale_token_changes_nothing_and_says_what_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "state"
    FENCE.write(path, b"of B", 18)

    with pytest.raises(StaleToken) as stale:
        FENCE.write(path, b"of A", 17)

    assert (stale.value.presented, stale.value.highest, stale.value.resource) == (17, 18, str(path))
    assert path.read_bytes() == b"of B"


def test_an_equal_token_passes_and_once_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "state"
    FENCE.write(path, "1", 17, once=True)
    FENCE.write(path, "2", 17)

    with pytest.raises(StaleToken):
        FENCE.write(path, "3", 17, once=True)

    assert path.read_text() == "2"


def test_a_reader_makes_nobody_stale_and_is_refused_after_a_later_writer(tmp_path: Path) -> None:
    path = tmp_path / "state"
    FENCE.write(path, "1", "13;shared")
    FENCE.write(path, "2", "12;shared")
    FENCE.write(path, "3", 14)

    with pytest.raises(StaleToken):
        FENCE.write(path, "4", "13;shared")


def test_a_file_that_is_read_under_a_token_is_not_written_under_an_older_one(tmp_path: Path) -> None:
    path, fence = tmp_path / "state", FileFence()
    assert fence.read(path, 16) is None
    fence.write(path, "1", 16)

    assert fence.read(path, 18) == b"1"

    with pytest.raises(StaleToken):
        fence.write(path, "late", 17)
    with pytest.raises(StaleToken):
        fence.read(path, 17)


def test_tokens_are_exact_to_the_last(tmp_path: Path) -> None:
    FENCE.write(tmp_path / "state", "1", LARGEST)

    with pytest.raises(StaleToken) as stale:
        FENCE.write(tmp_path / "state", "2", LARGEST - 1)

    assert stale.value.highest == LARGEST


def test_a_symbolic_link_leads_to_the_same_fence(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")
    FENCE.write(tmp_path / "link", "of B", 18)

    with pytest.raises(StaleToken):
        FENCE.write(tmp_path / "state", "of A", 17)
    assert (tmp_path / "link").is_symlink()


def test_the_rights_of_the_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("before")
    path.chmod(0o640)

    FENCE.write(path, "after", 17)

    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("hostile", ["a'b\"c", "new\nline", "日本語", "x" * 255, ".hidden", "-rf"])
def test_a_hostile_file_name_is_fenced(tmp_path: Path, hostile: str) -> None:
    FENCE.write(tmp_path / hostile, "of B", 18)

    with pytest.raises(StaleToken):
        FENCE.write(tmp_path / hostile, "of A", 17)
    assert (tmp_path / hostile).read_text() == "of B"


def test_nobody_comes_between_a_check_and_its_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, admitted, go_on = tmp_path / "state", threading.Event(), threading.Event()
    real = file._write_new

    def slowly(new: Path, old: Path, data: bytes) -> None:
        if data == b"of A":
            admitted.set()
            assert go_on.wait(30)
        real(new, old, data)

    monkeypatch.setattr(file, "_write_new", slowly)
    first = threading.Thread(target=FENCE.write, args=(path, "of A", 17))
    second = threading.Thread(target=FENCE.write, args=(path, "of B", 18))
    first.start()
    assert admitted.wait(30)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    go_on.set()
    first.join(30)
    second.join(30)

    assert path.read_text() == "of B"


def test_of_many_first_uses_at_once_the_highest_stays(tmp_path: Path) -> None:
    path, start, refused = tmp_path / "state", threading.Barrier(12), list[int]()

    def write(token: int) -> None:
        start.wait()
        try:
            FENCE.write(path, str(token), token)
        except StaleToken:
            refused.append(token)

    threads = [threading.Thread(target=write, args=(token,)) for token in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert path.read_text() == "12"
    assert 12 not in refused


def test_appends_are_kept_in_order_until_a_later_holder_comes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("begin\n")
    with FENCE.open(path, 17) as ours:
        ours.write("one\n")
        ours.write(b"two\n")
        with FENCE.open(path, 18) as later:
            later.write("three\n")
        with pytest.raises(StaleToken):
            ours.write("four\n")

    assert path.read_text() == "begin\none\ntwo\nthree\n"


def test_a_stale_holder_cannot_even_open(tmp_path: Path) -> None:
    FENCE.write(tmp_path / "log", "", 18)

    with pytest.raises(StaleToken):
        FENCE.open(tmp_path / "log", 17)


def test_an_append_goes_to_the_file_that_replaced_the_opened_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with FENCE.open(path, 17) as log:
        log.write("old\n")
        FENCE.write(path, "new\n", 17)
        log.write("more\n")

    assert path.read_text() == "new\nmore\n"


CRASHING = """
import os, sys
from holdfast.fence.file import FileFence

def do(path):
    {work}

def run(path, calls):
    def counted(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls -= 1
            if calls < 0:
                os._exit(9)
            return real(*args, **kwargs)
        return call
    for name in ("write", "pwrite", "fsync", "replace", "open", "ftruncate"):
        setattr(os, name, counted(getattr(os, name)))
    {sabotage}
    do(path)
    os._exit(0)

for calls, path in enumerate(sys.argv[1:], {first}):
    child = os.fork() or run(path, calls)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
NEVER = 10**6
HALF = "real = os.write; os.write = lambda file, data: (real(file, data[:2]), os._exit(9))"


def crash(paths: list[Path], work: str, first: int = 0, sabotage: str = "pass") -> list[int]:
    """Do something to each path in a process that dies at its n-th system call; 9 for each that did."""
    program = CRASHING.format(work=work, first=first, sabotage=sabotage)
    done = subprocess.run([sys.executable, "-c", program, *map(str, paths)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    codes = [int(line) for line in done.stdout.splitlines()]
    assert set(codes) <= {0, 9}, done.stderr
    return codes


def test_a_write_that_dies_at_any_point_leaves_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    paths = [tmp_path / f"state-{at}" for at in range(30)]
    for path in paths:
        FENCE.write(path, "old", 17)

    codes = crash(paths, "FileFence().write(path, 'new' * 1000, 18)")

    assert codes[0] == 9
    assert codes[-1] == 0
    for path in paths:
        content = path.read_text()
        assert content in ("old", "new" * 1000)
        if content != "old":
            with pytest.raises(StaleToken):
                FENCE.write(path, "stale", 17)
        FENCE.write(path, "later", 19)
        assert path.read_text() == "later"


def test_an_append_that_dies_at_any_point_is_there_as_a_whole_or_undone_by_the_next(tmp_path: Path) -> None:
    paths = [tmp_path / f"log-{at}" for at in range(40)]
    for path in paths:
        with FENCE.open(path, 17) as log:
            log.write("old\n")

    codes = crash(paths, "FileFence().open(path, 18).write('new\\n')")

    assert codes[0] == 9
    assert codes[-1] == 0
    for path, code in zip(paths, codes, strict=True):
        with FENCE.open(path, 19) as log:
            log.write("later\n")
        whole = "old\nnew\nlater\n"
        assert path.read_text() in ((whole,) if code == 0 else (whole, "old\nlater\n"))


def test_half_of_an_append_is_undone_by_the_next(tmp_path: Path) -> None:
    """A process that died inside of write(2), as a full disk or a cut would have it."""
    path = tmp_path / "log"
    with FENCE.open(path, 17) as log:
        log.write("old\n")
    crash([path], "FileFence().open(path, 18).write('new\\n')", NEVER, HALF)
    assert path.read_text() == "old\nne"

    with FENCE.open(path, 18) as log:
        log.write("new\n")

    assert path.read_text() == "old\nnew\n"


def test_an_append_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    path, old = tmp_path / "log", "x" * 8190
    with FENCE.open(path, 17) as log:
        log.write(old)

    program = (
        "import resource, sys; from holdfast.fence import FileFence; log = FileFence().open(sys.argv[1], 18); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); log.write('too long')"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True)

    assert "File too large" in done.stderr
    assert path.read_text() == old


def test_half_of_an_append_does_not_cut_what_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    crash([path], "FileFence().open(path, 17).write('new\\n')", NEVER, HALF)
    assert path.read_text() == "ne"

    FENCE.write(path, "replaced\n", 18)
    with FENCE.open(path, 18) as log:
        log.write("more\n")

    assert path.read_text() == "replaced\nmore\n"


@pytest.mark.parametrize("turn", [0, 1])
def test_a_record_that_was_half_written_gives_way_to_the_other(tmp_path: Path, turn: int) -> None:
    path, ledger = tmp_path / "state", tmp_path / ".state.fence"
    FENCE.write(path, "1", 17)
    FENCE.write(path, "2", 18)
    with ledger.open("r+b") as file:
        file.seek(turn * 4096 + 5)
        file.write(b"garbage")

    with pytest.raises(StaleToken):
        FENCE.write(path, "stale", 16)


def test_a_ledger_without_a_good_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    FENCE.write(path, "1", 17)
    FENCE.write(path, "2", 18)
    (tmp_path / ".state.fence").write_bytes(b"x" * 8192)

    with pytest.raises(InvalidRequest, match="damaged"):
        FENCE.write(path, "3", 19)


FORKING = """
import fcntl, os, sys
from holdfast.fence.file import FileFence

real, forked = os.fsync, []

def fsync(file):
    if not forked:
        forked.append(os.fork() or (os.read(0, 1), os._exit(0)))
    real(file)

os.fsync = fsync
FileFence().write(sys.argv[1] + "/state", "1", 17)
with open(sys.argv[1] + "/.state.fence") as ledger:
    fcntl.flock(ledger, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def test_a_child_that_is_forked_during_a_write_does_not_keep_others_from_writing(tmp_path: Path) -> None:
    """As a worker of multiprocessing is, while another thread writes."""
    command = [sys.executable, "-c", FORKING, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        code = program.wait(30)
        said = program.communicate("x")[1]

    assert code == 0, said


def test_content_and_folder_are_durable_when_write_returns(tmp_path: Path) -> None:
    """By the system calls: the content before its new name, the folder after it."""
    trace = tmp_path / "trace"
    command = f"from holdfast.fence import FileFence; FileFence().write({str(tmp_path / 'state')!r}, 'x', 17)"
    subprocess.run(
        ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=fsync,rename", sys.executable, "-c", command],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )

    calls = [line.partition(" ")[2].strip() for line in trace.read_text().splitlines() if str(tmp_path) in line]
    kinds = [
        "rename" if call.startswith("rename") else os.path.basename(call.partition("<")[2].partition(">")[0])
        for call in calls
    ]
    assert kinds == [tmp_path.name, ".state.fence-new", ".state.fence", "rename", tmp_path.name]


def test_tokens_of_things_that_are_no_files_are_kept_in_a_folder(tmp_path: Path) -> None:
    FileFence(tmp_path).check(18, resource="users")
    FileFence(tmp_path).check(17, resource="Users")

    with pytest.raises(StaleToken):
        FileFence(tmp_path).check(17, resource="users")
    with pytest.raises(InvalidRequest, match="FileFence"):
        FENCE.check(17, resource="users")


# Hard links


def test_a_file_with_a_second_name_is_refused_whatever_is_done_to_it(tmp_path: Path) -> None:
    path, other = tmp_path / "state", tmp_path / "other"
    FENCE.write(path, b"of B", 18)
    other.hardlink_to(path)

    for name in path, other:
        with pytest.raises(InvalidRequest, match="2 names"):
            FENCE.write(name, b"of A", 17)
        with pytest.raises(InvalidRequest, match="2 names"):
            FENCE.read(name, 19)
        with pytest.raises(InvalidRequest, match="2 names"):
            FENCE.open(name, 17)
    other.unlink()
    with pytest.raises(StaleToken):
        FENCE.write(path, b"of A", 17)
    assert path.read_bytes() == b"of B"


def test_a_second_name_that_comes_later_is_seen_by_the_next_append(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with FENCE.open(path, 18) as log:
        log.write("one")
        (tmp_path / "other").hardlink_to(path)

        with pytest.raises(InvalidRequest, match="2 names"):
            log.write("two")
    assert path.read_text() == "one"

import multiprocessing
import os
import signal
import time

import pytest

from assay.evidence.shared import shared, watch_shared


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    return tmp_path


def test_it_is_made_once_for_a_key_and_again_for_another(cache):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "x").write_text("1")

    first = shared({"a": [1, 2]}, make)
    assert shared({"a": [1, 2]}, make) == first
    assert shared({"a": [2, 1]}, make) != first
    assert len(made) == 2
    assert (first / "x").read_text() == "1"


def test_another_version_of_the_code_makes_it_again(cache):
    folders = []
    for code in ("one", "two", "one"):
        with watch_shared(code):
            folders.append(shared("key", lambda folder: None))
    assert folders[0] == folders[2] != folders[1]


def test_shared_work_that_uses_shared_work_counts_once_and_whole():
    def burn(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def outer(folder):
        burn(0.2)
        shared("inner", lambda folder: burn(0.3))

    with watch_shared("code") as first:
        shared("outer", outer)
    with watch_shared("code") as later:
        shared("outer", outer)
    assert 0.5 <= first.cpu_here < 0.7
    assert sorted(round(cost, 1) for cost in first.used.values()) == [0.2, 0.3]
    assert later.used == first.used
    assert later.cpu_here < 0.1


def test_a_failed_or_killed_attempt_leaves_nothing_behind(cache):
    def fail(folder):
        (folder / "half").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        shared("key", fail)
    process = multiprocessing.get_context("spawn").Process(target=_make_forever)
    process.start()
    while not list(cache.glob("shared/*.part/begun")):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    folder = shared("key", lambda folder: (folder / "whole").write_text("whole"))
    assert sorted(path.name for path in folder.iterdir()) == ["cost.json", "whole"]


def _make_forever():
    def make(folder):
        (folder / "begun").touch()
        time.sleep(600)

    shared("key", make)


def test_processes_that_come_at_once_make_it_once(cache):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_make_and_log, args=(str(cache / "log"),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (cache / "log").read_text() == "made\n"


def _make_and_log(log):
    def make(folder):
        with open(log, "a") as file:
            file.write("made\n")
        time.sleep(0.5)

    shared("key", make)


def test_a_key_that_json_cannot_write_is_refused():
    with pytest.raises(TypeError, match="JSON"):
        shared({"a": object()}, lambda folder: None)

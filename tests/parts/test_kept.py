import errno
import multiprocessing
import os
import signal
import time

import pytest

from assay.errors import InputError
from assay.parts.cache import cache_folder, kept


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    return tmp_path


def test_the_cache_is_where_the_user_says(cache, monkeypatch):
    assert cache_folder() == cache
    monkeypatch.delenv("ASSAY_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert str(cache_folder()) == "/some/where/assay"


def test_it_is_made_once_for_a_name():
    made = []

    def make(folder):
        made.append(folder)
        (folder / "x").write_text("1")

    first = kept("a-1.0", make)
    assert kept("a-1.0", make) == first
    assert kept("a-1.1", make) != first
    assert len(made) == 2
    assert (first / "x").read_text() == "1"


def test_a_failed_attempt_leaves_nothing_and_the_next_one_succeeds(cache):
    def fail(folder):
        (folder / "half").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        kept("a", fail)
    assert [path.name for path in (cache / "kept").iterdir()] == ["a.lock"]
    folder = kept("a", lambda folder: (folder / "whole").write_text("whole"))
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_what_a_killed_process_left_is_not_taken_for_whole(cache):
    process = multiprocessing.get_context("spawn").Process(target=_make_forever)
    process.start()
    while not list(cache.glob("kept/*.part/begun")):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    folder = kept("a", lambda folder: (folder / "whole").write_text("whole"))
    assert [path.name for path in folder.iterdir()] == ["whole"]


def _make_forever():
    def make(folder):
        (folder / "begun").touch()
        time.sleep(600)

    kept("a", make)


def test_processes_that_come_at_once_make_it_once_and_all_get_it_whole(cache):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_make_and_read, args=(str(cache / "log"),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (cache / "log").read_text() == "made\n"


def _make_and_read(log):
    def make(folder):
        with open(log, "a") as file:
            file.write("made\n")
        (folder / "first").write_text("1")
        time.sleep(0.5)
        (folder / "last").write_text("2")

    assert (kept("a", make) / "last").read_text() == "2"


def test_a_full_disk_is_named(cache):
    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"/kept/a cannot be written: .*No space left on device"):
        kept("a", full)


def test_a_place_that_cannot_be_written_is_named(cache, monkeypatch):
    (cache / "file").write_text("no folder")
    monkeypatch.setenv("ASSAY_CACHE", str(cache / "file"))
    with pytest.raises(InputError, match=r"/file/kept cannot be written \(.*\): name another folder in ASSAY_CACHE"):
        kept("a", lambda folder: None)


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b", ".a", "a.part", "a.lock"])
def test_a_name_that_is_no_plain_name_is_refused(name):
    with pytest.raises(ValueError, match="name must"):
        kept(name, lambda folder: None)

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from assay.evidence import warm


@pytest.fixture
def process():
    made = warm.WarmProcess()
    yield made
    made.close()


def gone(pid):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_calls_run_in_one_other_process(process):
    pids = {process.call(os.getpid) for _ in range(3)}
    assert len(pids) == 1
    assert os.getpid() not in pids


def test_an_error_comes_back_and_the_process_lives_on(process):
    with pytest.raises(RuntimeError, match="ValueError: invalid literal"):
        process.call(int, "x")
    assert process.call(int, "7") == 7


def test_a_call_past_its_time_is_ended(process):
    start = time.monotonic()
    with pytest.raises(warm.ProcessLost, match=r"ran past its limit of 0\.5 s"):
        process.call(time.sleep, 60, seconds=0.5)
    assert time.monotonic() - start < 10


def test_a_call_past_its_memory_is_ended(process):
    def eat():
        hoard = []
        while True:
            hoard.append(bytearray(20_000_000))

    with pytest.raises(warm.ProcessLost, match="more memory than its limit of 400 MiB"):
        process.call(eat, mib=400, seconds=60)


@pytest.mark.parametrize(
    ("code", "words"),
    [("os._exit(3)", "exit code 3"), ("os.kill(os.getpid(), 9)", "SIGKILL"), ("os.abort()", "SIGABRT")],
)
def test_a_death_is_told_with_its_cause(process, code, words):
    with pytest.raises(warm.ProcessLost, match=words):
        process.call(eval, f"__import__('os') and exec('import os; {code}')")


def test_what_a_call_started_ends_with_it(process):
    def start_and_hang(path):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(path, "w") as file:
            file.write(str(child.pid))
        time.sleep(600)

    path = f"/tmp/assay-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        with pytest.raises(warm.ProcessLost):
            process.call(start_and_hang, path, seconds=2)
        with open(path) as file:
            assert gone(int(file.read()))
    finally:
        os.unlink(path)


def test_the_owners_death_ends_the_process_even_in_a_call():
    code = (
        "import os, sys, time, threading\n"
        "from assay.evidence import warm\n"
        "print(warm.call(os.getpid), flush=True)\n"
        "warm.call(time.sleep, 600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    time.sleep(0.3)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert gone(pid)


def test_threads_are_limited_before_libraries_load():
    def limits():
        import numpy  # noqa: F401
        import threadpoolctl

        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()], os.environ["OMP_NUM_THREADS"]

    for threads in (1, 2):
        process = warm.WarmProcess(threads)
        pools, variable = process.call(limits)
        process.close()
        assert variable == str(threads)
        assert pools
        assert max(pools) <= threads


def test_many_calls_at_once_do_not_mix():
    results = {}

    def work(i):
        results[i] = [warm.call(pow, i, k) for k in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    warm.close_all()
    assert results == {i: [i**k for k in range(20)] for i in range(4)}


def test_close_all_ends_calls_under_way():
    caught = []

    def work():
        try:
            warm.call(time.sleep, 60)
        except warm.ProcessLost as lost:
            caught.append(str(lost))

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(1)
    warm.close_all()
    thread.join(10)
    assert not thread.is_alive()
    assert len(caught) == 1


def test_a_call_that_forks_answers_once(process):
    def fork(x):
        os.fork()
        return x

    assert [process.call(fork, i) for i in range(5)] == list(range(5))


def test_a_call_that_closes_every_file_does_not_write_its_answer_into_another(process, tmp_path):
    def close_and_open(path):
        os.closerange(3, 64)
        for i in range(20):
            open(f"{path}{i}", "w")  # noqa: SIM115
        return 1

    with pytest.raises(warm.ProcessLost):
        process.call(close_and_open, str(tmp_path / "file"), seconds=10)
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("file*"))


def test_an_unreadable_error_is_told_in_one_line(process):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    def raise_odd():
        raise Odd

    def raise_long():
        raise ValueError("long\n" * 1_000_000)

    with pytest.raises(RuntimeError, match="Odd: Odd without a readable message"):
        process.call(raise_odd)
    with pytest.raises(RuntimeError, match="ValueError: long long") as error:
        process.call(raise_long)
    assert len(str(error.value)) < 400


def test_an_unknown_signal_has_a_number(process):
    with pytest.raises(warm.ProcessLost, match=r"signal 40|SIGRTMIN"):
        process.call(eval, "__import__('os').kill(__import__('os').getpid(), 40)")


def test_processes_that_left_the_group_end_and_count(process):
    def start_apart(hold):
        code = f"import time; x = bytearray({hold}); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        time.sleep(0.5 if hold < 10**6 else 600)
        return child.pid

    pid = process.call(start_apart, 1)
    assert psutil.pid_exists(pid)
    with pytest.raises(warm.ProcessLost, match="more memory than its limit of 700 MiB"):
        process.call(start_apart, 10**9, mib=700, seconds=30)
    assert gone(pid)


def test_groups_do_not_share_a_process():
    pids = [warm.call(os.getpid, group=group) for group in ("", "mine", "", "mine")]
    warm.close_all()
    assert pids[0] == pids[2] != pids[1] == pids[3]


def test_the_owners_death_ends_a_call_that_holds_pythons_lock():
    code = (
        "import os, re\n"
        "from assay.evidence import warm\n"
        "print(warm.call(os.getpid), flush=True)\n"
        "warm.call(re.match, r'(a+)+$', 'a' * 60 + 'b')\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    time.sleep(0.5)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    assert gone(pid)


def test_the_start_of_a_process_is_no_part_of_a_calls_time():
    assert warm.call(abs, -3, group="new", seconds=0.05) == 3
    warm.close_all()

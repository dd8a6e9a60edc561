"""What is kept: replies found again, by several processes, through interruptions, and nothing that is secret."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from chat_server import completion, echo, said, serving

from assay.errors import InputError
from assay.parts.chat import Chat, Reply, Sample, Timeouts, Usage, total_usage
from assay.parts.chat.reply_cache import ReplyCache


def chat(server, cache, **changes):
    return Chat(server.url, "small", **({"cache": cache, "backoff": 0.01, "timeouts": Timeouts(5, 15, 30)} | changes))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "new folder" / "replies.sqlite"


def test_the_same_is_not_asked_twice(file):
    with serving(echo) as server:
        first = chat(server, file).complete(["a", "b"], temperature=0.7, n=2)
        again = chat(server, file).complete(["b", "c", "a"], temperature=0.7, n=2)
        assert [result.text for result in again] == ["b", "c", "a"]
        assert [result.cached for result in again] == [True, False, True]
        assert len(server.seen) == 3
        assert total_usage(first + again) == Usage(9, 6)
        assert total_usage(again, cached=True) == Usage(9, 6)
        assert again[2].samples == first[0].samples
        assert again[2].seconds == pytest.approx(first[0].seconds, abs=1e-3)


def test_whatever_could_change_the_answer_asks_anew(file):
    talk = [{"role": "user", "content": "a"}]
    calls = [
        {}, {"temperature": 0.1}, {"top_p": 0.5}, {"max_tokens": 5}, {"seed": 1}, {"seed": 2}, {"stop": "x"}, {"n": 2},
        {"extra": {"k": 1}},
    ]  # fmt: skip
    with serving(echo) as server:
        for call in calls * 2:
            chat(server, file).ask(talk, **call)
        Chat(server.url, "large", cache=file).ask(talk)
        chat(server, file).ask([{"role": "system", "content": "a"}])
        assert len(server.seen) == len(calls) + 2
        chat(server, file, stream=True, concurrency=1, retries=0).ask("a")  # how it is asked changes nothing
        assert len(server.seen) == len(calls) + 2


def test_another_endpoint_is_another_answer(file):
    with serving(echo) as one, serving(echo) as other:
        for server in (one, other, one):
            chat(server, file).ask("a")
        assert len(one.seen) == len(other.seen) == 1


def test_copies_of_a_conversation_have_answers_of_their_own_the_same_each_time(file):
    with serving(lambda handler, body, count: handler.json(completion(str(count)))) as server:
        first = [result.text for result in chat(server, file).complete(["a"] * 4, temperature=1.0)]
        assert sorted(first) == ["1", "2", "3", "4"]
        assert [result.text for result in chat(server, file).complete(["a"] * 4, temperature=1.0)] == first


def test_failures_are_not_kept(file):
    def answer(handler, body, count):
        handler.json({"error": "bad"}, 400) if count == 1 else echo(handler, body, count)

    with serving(answer) as server:
        assert not chat(server, file).complete(["a"])[0].ok
        assert chat(server, file).ask("a").text == "a"


def test_what_is_kept_counts_as_a_reply_when_the_endpoint_has_gone(file):
    with serving(echo) as server:
        chat(server, file).ask("a")
    gone = chat(server, file, retries=0).complete(["a", "b"])
    assert gone[0].text == "a"
    assert gone[1].kind == "connection"
    assert chat(server, file).ask("a").cached  # nothing is asked, so nobody need be there


def test_without_a_cache_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    with serving(echo) as server:
        chat(server, False).ask("a")
        assert not list(tmp_path.iterdir())
        chat(server, True).ask("a")
    (kept,) = (tmp_path / "cache").rglob("*.sqlite")
    assert kept.stat().st_mode & 0o077 == 0  # for nobody else to read


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path):
    text, database, folder = tmp_path / "a.txt", tmp_path / "b.db", tmp_path / "c"
    text.write_text("some text that is no database, long enough to be looked at\n" * 20)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    folder.mkdir()
    before = text.read_bytes(), database.read_bytes()
    with serving(echo) as server:
        for path in (text, database, folder, text / "under"):
            with pytest.raises(InputError, match="as cache"):
                chat(server, path).ask("a")
        assert not server.seen
    assert (text.read_bytes(), database.read_bytes()) == before


def test_a_kept_reply_that_cannot_be_read_is_asked_anew(file):
    with serving(echo) as server:
        chat(server, file).ask("a")
        for broken in ("", "[]", '{"samples": 3}', '{"samples": [["a"]], "usage": null, "model": ""}'):
            with sqlite3.connect(file) as connection:
                connection.execute("UPDATE replies SET reply = ?", (broken,))
            connection.close()
            assert not chat(server, file).ask("a").cached
        assert chat(server, file).ask("a").cached


def test_a_reply_comes_back_as_it_was(file):
    reply = Reply((Sample("é\ufffd\x00", "stop"), Sample("", None)), None, "m", 3, 1.5)
    with ReplyCache(file) as cache:
        cache.put("k", reply)
        assert cache.get("k") == Reply(reply.samples, None, "m", 3, 1.5, cached=True)
        assert cache.get("other") is None


def test_of_several_that_start_at_once_one_makes_the_file(tmp_path):
    for attempt in range(10):
        start, file, errors = threading.Barrier(4), tmp_path / f"{attempt}.sqlite", []

        def put(name, start=start, file=file, errors=errors):
            start.wait()
            try:
                with ReplyCache(file) as cache:
                    cache.put(name, Reply((Sample(name),)))
            except InputError as error:
                errors.append(error)

        threads = [threading.Thread(target=put, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        with ReplyCache(file) as cache:
            assert [cache.get(name).text for name in "abcd"] == list("abcd")


WRITER = """
import sys
from pathlib import Path
from assay.parts.chat.replies import Reply, Sample
from assay.parts.chat.reply_cache import ReplyCache
for i in range(25):
    with ReplyCache(Path(sys.argv[1])) as cache:
        cache.put(f"{sys.argv[2]} {i}", Reply((Sample(sys.argv[2] * 1000),)))
        cache.put("both", Reply((Sample(sys.argv[2] * 1000),)))
"""


def test_two_processes_write_into_one_file(file):
    both = [subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, str(file), name]) for name in "ab"]
    assert [process.wait(60) for process in both] == [0, 0]
    with ReplyCache(file) as cache:
        for name in "ab":
            assert all(cache.get(f"{name} {i}").text == name * 1000 for i in range(25))
        assert cache.get("both").text in ("a" * 1000, "b" * 1000)


ASKER = """
import sys
from assay.parts.chat import Chat
print("ready", flush=True)
Chat(sys.argv[1], "small", cache=sys.argv[2], concurrency=2).complete([str(i) for i in range(10)])
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_loses_nothing_that_was_finished(file, end):
    def answer(handler, body, count):
        if int(said(body)) >= 6 and not server.later:
            handler.wait(30)
        echo(handler, body, count)

    with serving(answer) as server:
        server.later = False
        process = subprocess.Popen(
            [sys.executable, "-c", ASKER, server.url, str(file)], stderr=subprocess.PIPE, text=True,
            stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONFAULTHANDLER": "1"},
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while len(server.seen) < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(end)
        start = time.monotonic()
        _, errors = process.communicate(timeout=30)
        assert time.monotonic() - start < 20
        assert process.returncode != 0
        if end == signal.SIGINT:
            assert "KeyboardInterrupt" in errors
        server.later = True
        server.seen.clear()
        results = chat(server, file).complete([str(i) for i in range(10)])
        assert [result.text for result in results] == [str(i) for i in range(10)]
        assert sorted(said(body) for body in server.bodies) == ["6", "7", "8", "9"]

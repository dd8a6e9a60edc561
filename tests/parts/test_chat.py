"""The client against a server that behaves: what is sent, what comes back, how many at once."""

import json
import pickle
import subprocess
import sys
import threading

import pytest
from chat_server import chunks, completion, echo, said, serving

from assay.errors import EndpointError, InputError
from assay.parts.chat import Chat, Failure, Reply, Sample, Timeouts, Usage, total_usage

KEY = "sk-test-0123456789abcdef"


def chat(server, **changes):
    quick = {"cache": False, "backoff": 0.01, "timeouts": Timeouts(connect=5, read=15, total=30)}
    return Chat(server.url, "small", **(quick | changes))


def test_replies_come_in_the_order_of_their_conversations():
    def answer(handler, body, count):
        handler.wait(0.02 * (int(said(body)) % 3))  # the later ones are done first
        echo(handler, body, count)

    with serving(answer) as server:
        results = chat(server).complete([str(i) for i in range(20)])
        assert [result.text for result in results] == [str(i) for i in range(20)]
        assert all(result.ok and result.attempts == 1 and result.model == "small" for result in results)
        assert total_usage(results) == Usage(60, 40)


def test_what_is_sent_is_the_protocol():
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hé"}]}]
    with serving(lambda handler, body, count: handler.json(completion("yes"))) as server:
        chat(server).ask(
            talk, temperature=0.5, top_p=0.9, max_tokens=7, seed=3, stop=["\n"],
            extra={"logit_bias": {"1": 2}, "top_p": None},
        )  # fmt: skip
        ((path, headers, body),) = server.seen
        assert path == "/v1/chat/completions"
        assert body == {
            "model": "small", "messages": talk, "temperature": 0.5, "max_tokens": 7, "seed": 3, "stop": ["\n"],
            "logit_bias": {"1": 2},
        }  # fmt: skip
        assert headers["Content-Type"] == "application/json"
        assert "Authorization" not in headers


def test_the_key_comes_from_the_environment_and_stays_there(monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_KEY", KEY)

    def answer(handler, body, count):
        if said(body) == "wrong":
            handler.json({"error": {"message": f"cannot use {handler.headers['Authorization']}"}}, 400)
        else:
            handler.json(completion(handler.headers["Authorization"]))

    with serving(answer) as server:
        one = chat(server, key_env="SOME_KEY", cache=tmp_path / "replies.sqlite")
        right, wrong = one.complete(["right", "wrong"])
        assert server.seen[0][1]["Authorization"] == f"Bearer {KEY}"
        assert right.text == "Bearer ***"
        assert wrong.kind == "request"
        assert "***" in wrong.reason
        everything = repr([right, wrong, one]).encode() + pickle.dumps(one) + (tmp_path / "replies.sqlite").read_bytes()
        assert KEY.encode() not in everything
        monkeypatch.setenv("SOME_KEY", "EMPTY")  # what local servers are often given: a word like others
        assert one.ask("x", seed=1).text == "Bearer EMPTY"
        for bad in ("", "  ", "two\nlines", "é"):
            monkeypatch.setenv("SOME_KEY", bad)
            with pytest.raises(InputError, match="SOME_KEY"):
                one.ask("again")


@pytest.mark.parametrize("ends", ["\n\n", "\r\n\r\n", "\r\r"])
def test_streaming_gives_the_same_reply(ends):
    text = "Grüße 👋, two\nlines"

    def answer(handler, body, count):
        assert body["stream"] is True
        assert body["stream_options"] == {"include_usage": True}
        handler.events(chunks(*[text] * body.get("n", 1)), ends=ends)

    with serving(answer) as server:
        reply = chat(server, stream=True).ask("x", n=2)
        assert reply.samples == (Sample(text, "stop"),) * 2
        assert reply.usage == Usage(3, 2)
        assert reply.model == "small"


def test_characters_may_be_split_between_packets_and_comments_come_between():
    event = (
        f"data: {json.dumps({'choices': [{'delta': {'content': '👋é'}, 'finish_reason': 'stop'}]}, ensure_ascii=False)}"
    )

    def answer(handler, body, count):
        handler.start_events()
        handler.chunk(b": keep-alive\n\n")
        for byte in event.encode():
            handler.chunk(bytes([byte]))
        handler.chunk(b"\n\n")
        handler.chunk(b"")  # without [DONE], but the answer says that it is finished

    with serving(answer) as server:
        assert chat(server, stream=True).ask("x").text == "👋é"


def test_a_server_may_stream_unasked_or_not_stream_although_asked():
    with serving(lambda handler, body, count: handler.events(chunks("pieces"))) as server:
        assert chat(server).ask("x").text == "pieces"
    with serving(lambda handler, body, count: handler.json(completion("whole"))) as server:
        assert chat(server, stream=True).ask("x").text == "whole"


def test_several_samples_from_a_server_that_gives_them():
    def answer(handler, body, count):
        handler.json(completion(*(f"{said(body)}{i}" for i in range(body["n"]))))

    with serving(answer) as server:
        reply = chat(server).ask("a", n=3)
        assert [sample.text for sample in reply.samples] == ["a0", "a1", "a2"]
        assert len(server.seen) == 1


def test_several_samples_from_a_server_that_gives_one_at_a_time():
    with serving(lambda handler, body, count: handler.json(completion(f"seed {body.get('seed')}"))) as server:
        reply = chat(server).ask("a", n=3, seed=7)
        assert [sample.text for sample in reply.samples] == ["seed 7", "seed 8", "seed 9"]
        assert reply.usage == Usage(9, 6)
        assert reply.attempts == 3


def test_several_samples_from_a_server_that_refuses_to_give_several():
    def answer(handler, body, count):
        if "n" in body:
            handler.json({"error": {"message": "n must be 1"}}, 400)
        else:
            echo(handler, body, count)

    with serving(answer) as server:
        results = chat(server, concurrency=1).complete(["a", "b"], n=2)
        assert [[s.text for s in result.samples] for result in results] == [["a", "a"], ["b", "b"]]
        assert [body.get("n") for body in server.bodies] == [2, None, None, None, None]  # it learns the first time


def test_a_failure_keeps_the_samples_that_came_before_it():
    def answer(handler, body, count):
        if count < 3:
            handler.json(completion(str(count)))
        else:
            handler.json({"error": "no more"}, 422)

    with serving(answer) as server:
        (failure,) = chat(server).complete(["a"], n=3)
        assert [sample.text for sample in failure.samples] == ["1", "2"]


def test_no_more_at_once_than_allowed():
    together = threading.Event()

    def answer(handler, body, count):
        if server.open == 3:
            together.set()
        together.wait(10)
        handler.wait(0.02)
        echo(handler, body, count)

    with serving(answer) as server:
        chat(server, concurrency=3).complete([str(i) for i in range(9)])
        assert server.most_open == 3


def test_connections_are_used_again():
    addresses = set()

    def answer(handler, body, count):
        addresses.add(handler.client_address)
        echo(handler, body, count)

    with serving(answer) as server:
        chat(server, concurrency=2).complete([str(i) for i in range(12)])
        assert len(addresses) <= 2


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({"content": None, "refusal": "I will not."}, "I will not."),
        ({"content": [{"type": "text", "text": "a"}, {"type": "other"}, 3, {"text": "b"}]}, "ab"),
        ({"content": 5}, ""),
        ({"content": "\ud83d\udc4b \ud800 x"}, "👋 \ufffd x"),
    ],
)
def test_contents_of_many_kinds_become_text(message, text):
    with serving(lambda handler, body, count: handler.json({"choices": [{"message": message}]})) as server:
        reply = chat(server).ask("x")
        assert reply.text == text
        assert reply.usage is None
        assert reply.samples[0].finish_reason is None


@pytest.mark.parametrize("usage", [None, 3, {}, {"prompt_tokens": 3}, {"prompt_tokens": True, "completion_tokens": 1},
                                   {"prompt_tokens": -1, "completion_tokens": 1}])  # fmt: skip
def test_usage_that_is_missing_or_no_usage_is_none(usage):
    with serving(lambda handler, body, count: handler.json(completion("a", usage=None) | {"usage": usage})) as server:
        assert chat(server).ask("x").usage is None


def test_results_come_as_soon_as_they_are_there_and_leaving_ends_the_work():
    def answer(handler, body, count):
        handler.wait(0 if said(body) == "fast" else 30)
        echo(handler, body, count)

    with serving(answer) as server:
        results = chat(server, timeouts=Timeouts(read=30, total=60)).each(["slow", "fast"])
        assert next(results)[0] == 1
        results.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "assay-chat"]


def test_it_works_inside_a_running_event_loop():
    import asyncio

    async def cell():
        with serving(echo) as server:
            return chat(server).ask("x").text

    assert asyncio.run(cell()) == "x"


def test_progress_and_an_empty_list():
    steps = []
    with serving(echo) as server:
        chat(server).complete(["a", "b"], progress=lambda done, of: steps.append((done, of)))
        assert steps == [(1, 2), (2, 2)]
        assert chat(server).complete([]) == []


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving(echo) as server:
        assert chat(server).ask("x").text == "x"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:8000", "http://"),
        ("ftp://a", "http://"),
        ("http://", "http://"),
        ("http://user:secret@host/v1", "environment"),
        ("http://host/v1?key=secret", "environment"),
        ("http://host/v1#x", "environment"),
        ("http://host:port", "no address"),
        ("http://[::1", "no address"),
        ("http://ho st/v1", "ASCII"),
    ],
)
def test_a_wrong_base_url_is_refused_and_no_secret_in_it_shown(url, said):
    with pytest.raises(InputError, match=said) as caught:
        Chat(url, "m")
    assert "secret" not in str(caught.value)


def test_the_end_of_base_url_may_be_there_or_not():
    for url in ("http://host/v1", "http://host/v1/", " http://host/v1/chat/completions "):
        assert Chat(url, "m").base_url == "http://host/v1"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"model": " "}, InputError),
        ({"key_env": ""}, InputError),
        ({"concurrency": 0}, InputError),
        ({"concurrency": 1.5}, TypeError),
        ({"retries": -1}, InputError),
        ({"most_bytes": 0}, InputError),
        ({"backoff": 0}, InputError),
        ({"backoff": float("nan")}, InputError),
        ({"timeouts": 3}, TypeError),
    ],
)
def test_wrong_arguments_of_the_client_are_named(wrong, error):
    with pytest.raises(error, match=next(iter(wrong))):
        Chat(**({"base_url": "http://host/v1", "model": "m"} | wrong))


@pytest.mark.parametrize("name", ["connect", "read", "total"])
def test_wrong_timeouts_are_named(name):
    with pytest.raises(InputError, match=f"timeouts.{name}"):
        Timeouts(**{name: 0})
    with pytest.raises(TypeError, match=f"timeouts.{name}"):
        Timeouts(**{name: "1"})


@pytest.mark.parametrize(
    ("conversations", "settings", "error", "said"),
    [
        ("one text", {}, TypeError, "conversations"),
        ([3], {}, TypeError, r"conversations\[0\]"),
        ([b"x"], {}, TypeError, r"conversations\[0\]"),
        (["a", []], {}, InputError, r"conversations\[1\]"),
        ([[{"content": "x"}]], {}, InputError, r"conversations\[0\]\[0\].*role"),
        ([["x"]], {}, InputError, r"conversations\[0\]\[0\]"),
        ([[{"role": "user"}]], {}, InputError, r"conversations\[0\]\[0\].*content"),
        ([[{"role": "user", "content": [object()]}]], {}, InputError, r"conversations\[0\].*JSON"),
        (["a"], {"n": 0}, InputError, "n must"),
        (["a"], {"n": True}, TypeError, "n must"),
        (["a"], {"temperature": -1}, InputError, "temperature"),
        (["a"], {"temperature": float("nan")}, InputError, "temperature"),
        (["a"], {"temperature": "hot"}, TypeError, "temperature"),
        (["a"], {"top_p": 1.5}, InputError, "top_p"),
        (["a"], {"max_tokens": 0}, InputError, "max_tokens"),
        (["a"], {"seed": 0.5}, TypeError, "seed"),
        (["a"], {"stop": [1]}, TypeError, "stop"),
        (["a"], {"extra": {"messages": []}}, InputError, "extra.*messages"),
        (["a"], {"extra": {"x": float("inf")}}, InputError, "extra.*JSON"),
    ],
)
def test_wrong_arguments_of_a_call_are_named_before_anything_is_sent(conversations, settings, error, said):
    with serving(echo) as server:
        with pytest.raises(error, match=said):
            chat(server).each(conversations, **settings)
        assert not server.seen


def test_results_say_what_they_are():
    reply, failure = Reply((Sample("a"), Sample("b")), Usage(1, 2)), Failure("busy", "It is busy.", 429)
    assert reply.ok
    assert not failure.ok
    assert reply.text == "a"
    assert isinstance(failure.error(), EndpointError)
    assert total_usage([reply, failure, Reply((Sample("c"),))]) == Usage(1, 2)


def test_without_its_http_library_it_says_what_to_install():
    code = "import sys; sys.modules['httpx2'] = None; import assay.parts.chat"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "MissingPart: the client of chat endpoints needs httpx2" in done.stderr
    assert "'assay[endpoint]'" in done.stderr

"""The client against servers that fail in every way that servers do."""

import datetime
import gzip
import socket
import time
from email.utils import format_datetime

import pytest
from chat_server import chunks, completion, echo, said, serving

from assay.errors import EndpointError
from assay.parts.chat import Chat, Timeouts
from assay.parts.chat.waits import asked_wait, backoff


def chat(server, **changes):
    quick = {"cache": False, "backoff": 0.01, "timeouts": Timeouts(connect=5, read=15, total=30)}
    return Chat(server if isinstance(server, str) else server.url, "small", **(quick | changes))


def only(server, **changes):
    """The result of the one conversation."""
    (result,) = chat(server, **changes).complete(["hello"])
    return result


def at_first(times, fault):
    """A server that has a fault so many times, and then works."""

    def answer(handler, body, count):
        if count <= times:
            fault(handler)
        else:
            echo(handler, body, count)

    return answer


def cut_before(handler):
    handler.cut()


def cut_in_body(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.cut()


def cut_in_stream(handler):
    handler.start_events()
    handler.chunk(b'data: {"choices": [{"delta": {"content": "hel"}}]}\n\n')
    handler.cut()


def ended_stream(handler):
    handler.events([{"choices": [{"delta": {"content": "hel"}}]}], done=False)


FAULTS = {
    "429": lambda handler: handler.json({"error": {"message": "slow down"}}, 429),
    "500": lambda handler: handler.raw(b"<html>Oops</html>", 500, "text/html"),
    "503": lambda handler: handler.raw(b"", 503),
    "cut before the reply": cut_before,
    "cut in the body": cut_in_body,
    "cut in the stream": cut_in_stream,
    "stream ended early": ended_stream,
    "no JSON": lambda handler: handler.raw(b'{"choices": [{"mess'),
    "no JSON as text": lambda handler: handler.raw(b"hello", 200, "text/plain"),
    "empty": lambda handler: handler.raw(b""),
    "JSON of another kind": lambda handler: handler.json([1, 2]),
    "no choices": lambda handler: handler.json({"choices": []}),
    "choices of another kind": lambda handler: handler.json({"choices": ["a", {"message": "b"}, {}]}),
    "nested": lambda handler: handler.raw(b"[" * 100_000),
    "no JSON in an event": lambda handler: handler.events(["{oops"]),
    "empty stream": lambda handler: handler.events([]),
    "an error in the stream": lambda handler: handler.events([*chunks("he")[:2], {"error": {"message": "lost a GPU"}}]),
    "an error with status 200": lambda handler: handler.json({"error": {"code": 502, "message": "upstream"}}),
    "no HTTP": lambda handler: (handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n"), handler.cut()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_by_chance_is_asked_again(fault):
    with serving(at_first(2, FAULTS[fault])) as server:
        result = only(server)
        assert result.ok, result
        assert result.text == "hello"
        assert result.attempts == 3


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("429", "busy"), ("500", "busy"), ("cut before the reply", "cut"), ("cut in the body", "cut"),
        ("cut in the stream", "cut"), ("stream ended early", "cut"), ("no JSON", "reply"), ("no choices", "reply"),
        ("nested", "reply"), ("an error in the stream", "busy"), ("no HTTP", "cut"),
    ],
)  # fmt: skip
def test_what_goes_on_failing_is_recorded_with_its_reason(fault, kind):
    with serving(at_first(99, FAULTS[fault])) as server:
        result = only(server, retries=1)
        assert not result.ok
        assert result.kind == kind
        assert result.attempts == len(server.seen) == 2
        assert result.reason.startswith(server.url)
        assert "\n" not in result.reason
        with pytest.raises(EndpointError, match=server.url):
            chat(server, retries=0).ask("hello")


def test_one_failure_does_not_stop_the_others():
    def answer(handler, body, count):
        if said(body) == "bad":
            handler.json({"error": {"message": "too long by 7 tokens"}}, 400)
        else:
            echo(handler, body, count)

    with serving(answer) as server:
        results = chat(server).complete(["a", "bad", "b"])
        assert [result.ok for result in results] == [True, False, True]
        assert results[1].kind == "request"
        assert results[1].status == 400
        assert "too long by 7 tokens" in results[1].reason
        assert results[1].attempts == 1  # it would be as long the next time


def test_retry_after_is_honoured_by_all_and_over_the_back_off():
    arrivals = {}

    def answer(handler, body, count):
        arrivals.setdefault(said(body), []).append(time.monotonic())
        if count == 1:
            handler.json({}, 429, Retry_After="0.4")
        else:
            echo(handler, body, count)

    with serving(answer) as server:
        results = chat(server, concurrency=1, backoff=30).complete(["a", "b"])
        assert all(result.ok for result in results)
        assert 0.4 <= arrivals["a"][1] - arrivals["a"][0] < 14
    with serving(at_first(1, lambda handler: handler.json({}, 503, **{"retry-after-ms": "100"}))) as server:
        assert only(server, backoff=30).attempts == 2


def test_others_wait_too_when_the_endpoint_asks_for_it():
    arrivals = []

    def answer(handler, body, count):
        arrivals.append(time.monotonic())
        if count == 1:
            handler.json({}, 429, Retry_After="0.5")
        else:
            handler.wait(0.1)
            echo(handler, body, count)

    with serving(answer) as server:
        assert all(result.ok for result in chat(server, concurrency=2).complete(list("abcd")))
        # The one that was under way ends; nothing new starts before the time is over.
        assert sum(arrival - arrivals[0] < 0.4 for arrival in arrivals) <= 2


def test_a_longer_wait_than_there_is_time_for_is_a_failure_at_once():
    with serving(lambda handler, body, count: handler.json({}, 429, Retry_After="3600")) as server:
        start = time.monotonic()
        result = only(server)
        assert time.monotonic() - start < 15
        assert result.kind == "busy"
        assert "3600 s" in result.reason


def test_waits_double_up_to_a_minute_and_vary():
    class Chance:
        def __init__(self, at):
            self.at = at

        def uniform(self, low, high):
            return low + self.at * (high - low)

    assert [backoff(attempt, 0.5, Chance(1)) for attempt in (1, 2, 3, 100)] == [0.5, 1, 2, 60]
    assert backoff(3, 0.5, Chance(0)) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None), ({"retry-after": "1.5"}, 1.5), ({"retry-after": "-1"}, None), ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None), ({"retry-after": "tomorrow"}, None), ({"retry-after": ""}, None),
        ({"retry-after": "9" * 400}, None), ({"retry-after": "2", "retry-after-ms": "10"}, 0.01),
        ({"retry-after": "Wed, 99 Oct 2099 07:28:00 GMT"}, None),
    ],
)  # fmt: skip
def test_the_forms_of_retry_after(headers, seconds):
    assert asked_wait(headers) == seconds


def test_retry_after_may_be_a_date():
    now = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
    later = now + datetime.timedelta(seconds=90)
    assert asked_wait({"retry-after": format_datetime(later, usegmt=True)}, now) == 90
    assert asked_wait({"retry-after": format_datetime(now, usegmt=True)}, later) == 0


def test_a_server_that_says_nothing_runs_into_the_time_to_read():
    def answer(handler, body, count):
        if count == 1:
            handler.wait(20)
        else:
            echo(handler, body, count)

    with serving(answer) as server:
        result = only(server, timeouts=Timeouts(read=0.4, total=15))
        assert result.text == "hello"
        assert result.attempts >= 2
    with serving(lambda handler, body, count: handler.wait(20)) as server:
        result = only(server, timeouts=Timeouts(read=0.2, total=10), retries=1)
        assert result.kind == "time"
        assert "0.2 s" in result.reason


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_drips_runs_into_the_total_time(stream):
    def answer(handler, body, count):
        handler.start_events() if stream else handler.send_response(200)
        for _ in range(100):
            handler.chunk(b": wait\n\n") if stream else handler.wfile.write(b"X-Wait: 1\r\n")
            handler.wait(0.1)

    with serving(answer) as server:
        start = time.monotonic()
        result = only(server, timeouts=Timeouts(read=5, total=0.5))
        assert time.monotonic() - start < 8
        assert result.kind == "time"
        assert "0.5 s in all" in result.reason


def test_the_total_time_counts_repetitions_and_tells_what_was_before():
    with serving(at_first(999, FAULTS["500"])) as server:
        result = only(server, timeouts=Timeouts(read=5, total=0.8), retries=1000, backoff=0.05)
        assert result.kind == "time"
        assert "500" in result.reason
        assert 1 < result.attempts < 30


@pytest.mark.parametrize("stream", [False, True])
def test_a_huge_reply_is_refused_before_it_fills_the_memory(stream):
    sent = []

    def answer(handler, body, count):
        if stream:
            handler.start_events()
        else:
            handler.send_response(200)
            handler.send_header("Content-Length", str(10**12))
            handler.end_headers()
        for _ in range(2000):
            block = b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % (b"x" * 2**16)
            handler.chunk(block) if stream else handler.wfile.write(block)
            sent.append(len(block))

    with serving(answer) as server:
        result = only(server, most_bytes=2**20)
        assert result.kind == "size"
        assert result.attempts == 1
        assert "most_bytes" in result.reason
        assert sum(sent) < 100 * 2**20


def test_one_endless_event_is_refused_too():
    def answer(handler, body, count):
        handler.start_events()
        handler.chunk(b"data: ")
        while True:
            handler.chunk(b"x" * 2**16)

    with serving(answer) as server:
        assert only(server, most_bytes=2**20).kind == "size"


def test_a_huge_error_is_read_in_part():
    sent = []

    def answer(handler, body, count):
        handler.send_response(400)
        handler.send_header("Content-Length", str(2**30))
        handler.end_headers()
        for _ in range(2**10):
            handler.wfile.write(b"a" * 2**20)
            sent.append(1)

    with serving(answer) as server:
        result = only(server)
        assert result.kind == "request"
        assert len(result.reason) < 400
        assert len(sent) < 100


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_a_compressed_reply_is_refused_since_it_may_be_of_any_size(kind):
    bomb = gzip.compress(b"data: " + b"x" * 2**22)
    with serving(lambda handler, body, count: handler.raw(bomb, 200, kind, Content_Encoding="gzip")) as server:
        result = only(server)
        assert result.kind == "reply"
        assert "compressed" in result.reason
        assert server.seen[0][1]["Accept-Encoding"] == "identity"


def test_wrong_content_types_do_no_harm():
    def answer(handler, body, count):
        handler.raw(b'{"choices": [{"message": {"content": "fine"}}]}', 200, "image/png")

    with serving(answer) as server:
        assert only(server).text == "fine"


def raises(server, match, **changes):
    with pytest.raises(EndpointError, match=match) as caught:
        chat(server, **changes).complete(["a", "b", "c"])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_key_that_is_refused_ends_the_call(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-very-secret-thing")
    refusal = {"error": {"message": "Incorrect API key provided: sk-very-secret-thing", "code": "invalid_api_key"}}
    with serving(lambda handler, body, count: handler.json(refusal, 401)) as server:
        assert "sk-very" not in raises(server, "valid key into the environment variable SOME_KEY", key_env="SOME_KEY")
        raises(server, "key_env")
        assert len(server.seen) <= 6


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, {"error": {"message": "The model `small` does not exist", "code": "model_not_found"}}),
        (404, {"error": "model 'small' not found, try pulling it first"}),
        (400, {"error": {"message": "no", "type": "model_not_found"}}),
        (404, {"object": "error", "message": "The model does not exist.", "code": 404}),
    ],
)
def test_an_unknown_model_ends_the_call_and_says_which_there_are(status, error):
    with serving(lambda handler, body, count: handler.json(error, status)) as server:
        raises(server, "no model small.*it has large, small")


@pytest.mark.parametrize(
    "fault",
    [
        lambda handler: handler.json({"detail": "Not Found"}, 404),
        lambda handler: handler.raw(b"404 page not found", 404, "text/plain"),
        lambda handler: handler.json({"detail": "Method Not Allowed"}, 405),
        lambda handler: handler.raw(b"<!doctype html><title>Chat</title>", 200, "text/html"),
        lambda handler: handler.raw(b" <html>", 200, "application/json"),
    ],
)
def test_a_wrong_address_ends_the_call(fault):
    with serving(at_first(99, fault)) as server:
        raises(server, "base_url must be what stands before /chat/completions")


def test_a_redirection_is_not_followed_since_the_key_would_go_along():
    with serving(echo) as other, serving(
        lambda handler, body, count: handler.raw(b"", 308, Location=f"{other.url}/chat/completions")
    ) as server:  # fmt: skip
        raises(server, f"{other.url}.*as base_url")
        assert not other.seen


def test_a_server_that_is_not_there_ends_the_call():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"  # bound, and nobody listens
        raises(address, "cannot be reached.*check base_url, and that the server runs")
    raises("http://no-such-host.invalid/v1", "cannot be reached")
    raises("http://a..b/v1", "base_url")


def test_no_money_left_ends_the_call():
    error = {"error": {"message": "You exceeded your quota", "type": "insufficient_quota"}}
    with serving(lambda handler, body, count: handler.json(error, 429)) as server:
        raises(server, "look at the account")


def test_forbidden_is_about_one_conversation_unless_all_are():
    def answer(handler, body, count):
        if said(body) == "a":
            handler.json({"error": {"message": "against the rules"}}, 403)
        else:
            echo(handler, body, count)

    with serving(answer) as server:
        results = chat(server).complete(["a", "b"])
        assert [result.ok for result in results] == [False, True]
        assert results[0].kind == "forbidden"
    with serving(lambda handler, body, count: handler.json({"error": "no access"}, 403)) as server:
        raises(server, "no access")


def test_what_ends_the_call_at_first_is_a_failure_after_a_reply_and_the_rest_is_not_sent():
    def answer(handler, body, count):
        if count == 1:
            echo(handler, body, count)
        else:
            handler.json({"error": "key revoked"}, 401)

    with serving(answer) as server:
        results = chat(server, concurrency=1).complete([str(i) for i in range(30)])
        kinds = [result.kind for result in results[1:]]
        assert results[0].ok
        assert kinds == ["key"] * 8 + ["stopped"] * 21
        assert len(server.seen) == 9
        assert "stopped working" in results[-1].reason


def test_an_unusable_200_is_the_failure_of_one():
    with serving(lambda handler, body, count: handler.raw(b"", 204)) as server:
        assert only(server).kind == "request"


def test_choices_with_strange_numbers():
    choices = [{"index": i, "message": {"content": str(i)}} for i in (1, 0, -3, "x", 10**9, True)]
    with serving(lambda handler, body, count: handler.json(completion() | {"choices": choices})) as server:
        assert [sample.text for sample in chat(server).ask("a", n=2).samples] == ["0", "1"]

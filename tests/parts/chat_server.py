"""A server on this machine that speaks the protocol of chat completions, and misbehaves as it is told."""

import contextlib
import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(*texts, usage=(3, 2), model="small", finish="stop"):
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        for i, text in enumerate(texts)
    ]
    counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1]} if usage else None
    return {"id": "1", "object": "chat.completion", "model": model, "choices": choices} | (
        {"usage": counts} if counts else {}
    )


def chunks(*texts, usage=(3, 2), finish="stop"):
    """The events of the same reply in pieces, the choices in turns."""
    events = [{"model": "small", "choices": [{"index": i, "delta": {"role": "assistant"}}]} for i in range(len(texts))]
    for place in range(max(map(len, texts), default=0)):
        for i, text in enumerate(texts):
            if place < len(text):
                events.append({"choices": [{"index": i, "delta": {"content": text[place]}}]})
    events += [{"choices": [{"index": i, "delta": {}, "finish_reason": finish}]} for i in range(len(texts))]
    if usage:
        events.append({"choices": [], "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}})
    return events


def said(body):
    """What the user said last."""
    return body["messages"][-1]["content"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.seen.append((self.path, dict(self.headers), body))
            count = len(self.server.seen)
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        try:
            with contextlib.suppress(ConnectionError):
                self.server.answer(self, body, count)
        finally:
            with self.server.lock:
                self.server.open -= 1

    def do_GET(self):
        if self.path.endswith("/models"):
            self.json({"data": [{"id": "small"}, {"id": "large"}, {"id": 3}]})
        else:
            self.json({"detail": "Not Found"}, 404)

    def json(self, what, status=200, **headers):
        self.raw(json.dumps(what).encode(), status, **headers)

    def raw(self, content, status=200, kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def events(self, events, done=True, ends="\n\n"):
        self.start_events()
        for event in events:
            self.chunk(f"data: {event if isinstance(event, str) else json.dumps(event)}{ends}".encode())
        if done:
            self.chunk(f"data: [DONE]{ends}".encode())
        self.chunk(b"")

    def start_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, content):
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def cut(self):
        """End the connection at once, as a server that crashes."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def wait(self, seconds):
        """Wait, but not longer than the test lasts."""
        self.server.over.wait(seconds)

    def log_message(self, *ignored):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.seen = []
        self.open = self.most_open = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def bodies(self):
        return [body for _, _, body in self.seen]

    def handle_error(self, request, address):
        pass  # a client that left


@contextlib.contextmanager
def serving(answer):
    """A server whose every request is answered by ``answer(handler, body, how many came so far)``."""
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def echo(handler, body, count):
    """Say what the user said, as often as asked."""
    handler.json(completion(*[said(body)] * body.get("n", 1)))

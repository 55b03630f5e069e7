"""A stand-in for the model's API, and one run of the real client against it. Started inside a network of its own.

Reads a JSON document from stdin and prints one:

    in:  {"client": [program, argument, ...], "env": {...}, "cwd": "...", "replies": {mark: [reply, ...]},
          "turns": [{"prompt": "...", "options": [...], "kill_at": {"mark": "...", "step": n, "signal": 9}}, ...]}
    out: {"turns": [{"code": n, "out": "...", "err": "..."}, ...], "requests": [body, ...]}

A reply is {"text": "..."}, {"tool": name, "input": {...}} or {"status": n, "error": "..."}, with {"wait": seconds}
before it and {"tokens": n} for how long the conversation is said to be. Which one is given is told by the
conversation: the mark in the last prompt of a person names the list, the number of answers since then the place in it.
`kill_at` sends the client that signal as soon as that request has arrived.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_SET_FLAGS = 0x8914
_UP_AND_RUNNING = 0x41


def bring_loopback_up() -> None:
    """A new network namespace has a loopback that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SET_FLAGS, struct.pack("16sh", b"lo", _UP_AND_RUNNING).ljust(40, b"\0"))


def words(content: object) -> str:
    """The text in a message, whether it is a string or blocks."""
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content or [] if isinstance(block, dict))


class Model(ThreadingHTTPServer):
    """Answers by the script and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, replies: dict[str, list[dict]]) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.replies = replies
        self.requests: list[dict] = []
        self.arrived = threading.Condition()
        self.seen: set[tuple[str, int]] = set()
        self.waits = threading.Event()

    def choose(self, body: dict) -> tuple[dict, str, int]:
        """The reply to a request, and the mark and step it was chosen by."""
        messages = body.get("messages", [])
        for place in range(len(messages) - 1, -1, -1):
            if messages[place]["role"] != "user":
                continue
            said = words(messages[place]["content"])
            for mark, script in self.replies.items():
                if mark in said:
                    step = sum(1 for message in messages[place:] if message["role"] == "assistant")
                    return (script[step] if step < len(script) else {"text": "that is all"}), mark, step
        return {"text": "nothing in particular"}, "", 0

    def note(self, body: dict, mark: str, step: int) -> None:
        """Remember a request, and wake who waits for it."""
        with self.arrived:
            self.requests.append(body)
            self.seen.add((mark, step))
            self.arrived.notify_all()

    def wait_for(self, mark: str, step: int) -> None:
        """Return when that request has arrived."""
        with self.arrived:
            if not self.arrived.wait_for(lambda: (mark, step) in self.seen, 60):
                raise TimeoutError(f"no request for step {step} of {mark}")


class Conversation(BaseHTTPRequestHandler):
    """One connection of the client."""

    protocol_version = "HTTP/1.1"
    server: Model

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        """Whatever it asks: there is nothing."""
        self._json({"data": [], "has_more": False})

    def do_HEAD(self) -> None:
        """The client looks whether there is a server."""
        self.do_GET()

    def do_POST(self) -> None:
        """A request to the model."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if "messages" not in body or self.path.split("?")[0].endswith("count_tokens"):
            self._json({"input_tokens": 10})
            return
        reply, mark, step = self.server.choose(body)
        if not body.get("tools"):
            reply = {"text": '{"title": "a title"}'}
        else:
            self.server.note(body, mark, step)
        self.server.waits.wait(reply.get("wait", 0))
        if "status" in reply:
            error = {"type": "invalid_request_error", "message": reply["error"]}
            self._json({"type": "error", "error": error}, reply["status"])
            return
        message = self._message(reply, body)
        if body.get("stream"):
            self._stream(message)
        else:
            self._json(message)

    def _message(self, reply: dict, body: dict) -> dict:
        number = uuid.uuid4().hex
        blocks: list[dict] = []
        if "text" in reply:
            blocks.append({"type": "text", "text": reply["text"]})
        if "tool" in reply:
            blocks.append({"type": "tool_use", "id": f"toolu_{number}", "name": reply["tool"], "input": reply["input"]})
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "m"),
            "content": blocks,
            "stop_reason": "tool_use" if "tool" in reply else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": reply.get("tokens", 50), "output_tokens": 5},
        }

    def _stream(self, message: dict) -> None:
        blocks, stop = message["content"], message["stop_reason"]
        events = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
        for index, block in enumerate(blocks):
            if block["type"] == "text":
                start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                start = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            events += [
                {"type": "content_block_start", "index": index, "content_block": start},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index},
            ]
        usage = {"output_tokens": 5}
        events.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
        events.append({"type": "message_stop"})
        raw = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
        self._send(raw, "text/event-stream")

    def _json(self, document: dict, status: int = 200) -> None:
        self._send(json.dumps(document).encode(), "application/json", status)

    def _send(self, raw: bytes, kind: str, status: int = 200) -> None:
        try:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw)
        except (BrokenPipeError, ConnectionResetError):
            # The client was killed, as the test wanted.
            self.close_connection = True


def follow(model: Model, process: subprocess.Popen[bytes], turn: dict) -> tuple[bytes, bytes]:
    """Give the client its prompt, and the signal when its time has come; all that it said."""
    assert process.stdin
    process.stdin.write(turn["prompt"].encode())
    process.stdin.close()
    process.stdin = None
    if "kill_at" in turn:
        model.wait_for(turn["kill_at"]["mark"], turn["kill_at"]["step"])
        process.send_signal(turn["kill_at"]["signal"])
    return process.communicate(timeout=120)


def run_turn(model: Model, job: dict, turn: dict) -> dict:
    """One run of the client; what it said and how it ended."""
    process = subprocess.Popen(
        [*job["client"], *turn.get("options", [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=job["cwd"],
        env={**job["env"], "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.server_port}"},
    )
    try:
        out, err = follow(model, process, turn)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return {"code": process.returncode, "out": out.decode("utf-8", "replace"), "err": err.decode("utf-8", "replace")}


def main() -> None:
    """See the module's docstring."""
    job = json.load(sys.stdin)
    bring_loopback_up()
    model = Model(job["replies"])
    threading.Thread(target=model.serve_forever, daemon=True).start()
    turns = [run_turn(model, job, turn) for turn in job["turns"]]
    json.dump({"turns": turns, "requests": model.requests}, sys.stdout)


if __name__ == "__main__":
    main()

"""Shared by the serving benchmarks: a server as a child process, and requests to it over loopback."""
import asyncio
import contextlib
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import time
import typing

from repository import INGOT, ROOT


def run(*arguments):
    """Runs `ingot` with these arguments; returns its standard output."""
    done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ingot {' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def tiny_model(folder):
    """The tiny recipe's model after 20 steps, trained when missing."""
    if not (folder / "tiny/model/config.json").exists():
        run("pretrain", ROOT / "recipes/tiny.yaml", "--quiet", f"model={ROOT}/recipes/models/tiny", "name=tiny",
            f"run_dir={folder}", "steps=20", f"data.train={ROOT}/data/sotu/train.jsonl", "schedule.warmup_steps=5",
            f"data.eval={ROOT}/data/sotu/heldout.jsonl", "device=cpu")
    return folder / "tiny/model"


class Server:
    """A server program on a free port, which it gets by `--port`. `samples` are its (seconds, bytes of resident memory,
    descriptors). Its output goes to `log`."""

    ready_path, end_code = "/ready", 130  # `ingot serve`: ended by a signal, as requested

    def __init__(self, command, log):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = log.open("w")
        self.process = subprocess.Popen([*map(str, command), "--port", str(self.port)], stdout=self.log, stderr=self.log)
        self.samples = []
        self.began = time.monotonic()

    def look(self):
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        descriptors = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        self.samples.append((time.monotonic() - self.began, pages * resource.getpagesize(), descriptors))
        return self.samples[-1]

    async def watch(self, ended, interval=1):
        """Samples memory and descriptors every `interval` seconds until `ended` is set."""
        while not ended.is_set():
            self.look()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), interval)

    async def wait_ready(self):
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended with code {self.process.returncode}: see {self.log.name}")
            with contextlib.suppress(OSError):
                status, _ = await whole(self.port, "GET", self.ready_path)
                if status == 200:
                    return
            await asyncio.sleep(0.05)

    def end(self):
        self.process.terminate()
        code = self.process.wait(timeout=120)
        if code != self.end_code:
            sys.exit(f"the server ended with code {code}: see {self.log.name}")


def ingot_server(model, folder, *options):
    return Server([INGOT, "serve", "--model", model, "--device", "cpu", *options], folder / "serve.log")


async def send(port, method, path, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    text = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    writer.write(head.encode() + b"\r\n" + text)
    await writer.drain()
    status = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        pass
    return status, reader, writer


async def whole(port, method, path, body=None):
    """(status, body) of the answer."""
    status, reader, writer = await send(port, method, path, body)
    text = await reader.read()
    writer.close()
    return status, text


class Answer(typing.NamedTuple):
    text: str
    first: float = 0  # seconds to the first chunk
    tokens: int | None = None  # the server's count, when requested by `stream_options`


async def streamed(port, body, pause=None, leave_after=None):
    """The answer; when the stream is incomplete its text states the fault. None when the client left after `leave_after`
    chunks. Events may be split anywhere: chunk sizes of the transfer coding are lines that are not events."""
    began = time.monotonic()
    status, reader, writer = await send(port, "POST", "/v1/completions", body)
    try:
        if status != 200:
            return Answer(f"status {status}: {(await reader.read())[:500]}")
        text, first, tokens, pieces = "", None, None, 0
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                return Answer(text, first, tokens)
            event = json.loads(line[6:])
            if "error" in event:
                return Answer(f"error {event['error']['message']}")
            text += event["choices"][0]["text"] if event["choices"] else ""
            tokens = event["usage"]["completion_tokens"] if event.get("usage") else tokens
            first = first or time.monotonic() - began
            pieces += 1
            if leave_after is not None and pieces >= leave_after:
                return None
            if pause is not None:
                await asyncio.sleep(pause)
        return Answer(f"cut after {text!r}")
    finally:
        writer.close()


def percentile(values, share):
    """The nearest-rank percentile of one or more values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]

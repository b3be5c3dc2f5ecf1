"""The server under attack: `ingot serve` as a child process on a free loopback port, and raw requests to it."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
INGOT = pathlib.Path(os.environ.get("INGOT_EXECUTABLE", ROOT / "build/release/ingot"))
LIMIT_S = 120  # reached only when something hangs; no outcome depends on speed


def environment_of(folder):
    """An environment that neither reads nor writes the user's INGOT_HOME."""
    return {**os.environ, "INGOT_HOME": str(folder / "home")}


def tiny_model(folder):
    """The tiny recipe's model after one step; trained when it is missing."""
    if not (folder / "tiny/model/config.json").exists():
        subprocess.run([INGOT, "pretrain", ROOT / "recipes/tiny.yaml", "--quiet", f"model={ROOT}/recipes/models/tiny",
                        "steps=1", "schedule.warmup_steps=0", f"run_dir={folder}", f"data.train={ROOT}/data/sotu/train.jsonl",
                        f"data.eval={ROOT}/data/sotu/heldout.jsonl"], check=True, capture_output=True,
                       env=environment_of(folder))
    return folder / "tiny/model"


class Answer:
    """A response. `status` is 0 when the connection ended without one."""

    def __init__(self, raw):
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        self.status = int(words[1]) if len(words) > 1 and words[0].startswith("HTTP/") else 0
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if self.headers.get("transfer-encoding") == "chunked":
            body = b"".join(_chunks(body))
        self.body = body

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The error object in OpenAI's form, or {}."""
        with contextlib.suppress(ValueError, AttributeError):
            return self.json().get("error") or {}
        return {}

    def __repr__(self):
        return f"{self.status} {self.body[:200]!r}"


def _chunks(body):
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size or b"0", 16)
        if count == 0:
            return
        yield body[:count]
        body = body[count + 2:]


class Server:
    """Starts with the object and stops at the end of `with`. `key` is sent with every request that has no key of its own."""

    def __init__(self, model, folder, *options, key=None):
        self.key = key
        self.folder = folder
        self.log = folder / "serve.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([INGOT, "serve", "--model", model, "--device", "cpu", "--port", "0",
                                             "--access-log", folder / "access.jsonl", *options], stdout=log, stderr=log,
                                            env=environment_of(folder))
        self.port = self._wait_for_port()

    def _wait_for_port(self):
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            found = re.search(r"answers at https?://[^ ]*:(\d+)", self.log.read_text())
            if found:
                return int(found[1])
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}: {self.log.read_text()}")
            time.sleep(0.02)
        raise AssertionError(f"the server did not start: {self.log.read_text()}")

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def alive(self):
        return self.process.poll() is None

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        return self.process.wait(timeout=LIMIT_S)

    def peak_bytes(self):
        """The process's peak memory."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024

    def connect(self, source="127.0.0.1"):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S, source_address=(source, 0))

    def head(self, method, path, length=None, key=None):
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close"]
        if key or self.key:
            lines.append(f"Authorization: Bearer {key or self.key}")
        if length is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def open(self, method, path, body=None, key=None, source="127.0.0.1"):
        """Opens a connection and sends this request."""
        data = None if body is None else json.dumps(body).encode()
        connection = self.connect(source)
        with contextlib.suppress(ConnectionError):  # refused before the server read all of it: the answer gives the reason
            connection.sendall(self.head(method, path, None if data is None else len(data), key) + (data or b""))
        return connection

    def ask(self, method, path, body=None, key=None, source="127.0.0.1"):
        return read_answer(self.open(method, path, body, key, source))

    def send_raw(self, data):
        connection = self.connect()
        connection.sendall(data)
        return read_answer(connection)

    def accepted(self):
        """The number of completions in the engine and of completed ones, which never decreases."""
        text = self.ask("GET", "/metrics").body.decode()
        names = r"(ingot_queued_requests|ingot_running_requests|ingot_requests_total\{[^}]*completions[^}]*\})"
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(rf"{names} ", line))

    def wait_for_log(self, words):
        until = time.monotonic() + LIMIT_S
        while words not in self.log.read_text():
            assert self.alive() and time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def wait_for_log_lines(self, least):
        """Waits for lines of the access log, which has one for each ended request."""
        until = time.monotonic() + LIMIT_S
        while len((self.folder / "access.jsonl").read_text().splitlines()) < least:
            assert self.alive() and time.monotonic() < until, "the access log has fewer lines"
            time.sleep(0.02)

    def wait_for_accepted(self, least):
        until = time.monotonic() + LIMIT_S
        while self.accepted() < least:
            if time.monotonic() > until:
                raise AssertionError(f"fewer than {least} completions were accepted")
            time.sleep(0.02)


def read_answer(connection):
    """All bytes until the server closes the connection."""
    raw = b""
    with connection:
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                raw += piece
    return Answer(raw)


def run_ingot(folder, *arguments):
    """Returns (exit code, standard output, standard error). A command that hangs is a failure."""
    environment = environment_of(folder)
    try:
        done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, env=environment)
    except subprocess.TimeoutExpired as hanging:
        raise AssertionError(f"ingot {' '.join(map(str, arguments))} hangs") from hanging
    return done.returncode, done.stdout, done.stderr


def copy_model(model, folder):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder)
    return folder

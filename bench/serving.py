#!/usr/bin/env python3
"""A server under load: does every client get its text, and does the server stay as small as it was?

  serving.py load [--streams N] [--report FILE.md]      N clients stream at once; each must get its whole right text
  serving.py soak [--minutes M] [--clients N] [--report FILE.md]
                                                        mixed traffic: clients that read slowly, leave, or are answered whole

Both start `ingot serve` on the tiny recipe's model after 20 steps (made in --folder, by default build/serving), in a
process of its own, and talk to it over loopback. What is right comes from `ingot generate`, one prompt at a time, before.
Memory and descriptors are the server's, from /proc, each second. Exit code 1: a text was wrong or missing; of a soak also
growth, by medians: in the last third of the time the server held a twentieth (and 8 MiB) more memory than in the middle
third, or had more descriptors open when every client had left than before the first came.
Needs ./run build. `ulimit -n` must allow one descriptor a client (12,800 streams: `ulimit -n 20000`).
"""
import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import resource
import socket
import statistics
import subprocess
import sys
import time

from repository import INGOT, ROOT, commit

TOKENS = 32
PROMPTS = ["My fellow Americans,", "Tonight I ask the Congress to", "The state of the Union is", "We will not", "Our schools",
           "In the last year", "Mr. Speaker,", "The American people", "Every child", "Health care", "Our soldiers",
           "The economy", "I want to thank", "This is the", "Let us", "More than"]


def run(*arguments):
    done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ingot {' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def tiny_model(folder):
    if not (folder / "tiny/model/config.json").exists():
        run("pretrain", ROOT / "recipes/tiny.yaml", "--quiet", f"model={ROOT}/recipes/models/tiny", "name=tiny",
            f"run_dir={folder}", "steps=20", f"data.train={ROOT}/data/sotu/train.jsonl", "schedule.warmup_steps=5",
            f"data.eval={ROOT}/data/sotu/heldout.jsonl", "device=cpu")
    return folder / "tiny/model"


class Server:
    """`ingot serve` as a child; `samples` are its (seconds, bytes of resident memory, descriptors)."""

    def __init__(self, model, folder, *options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = (folder / "serve.log").open("w")
        self.process = subprocess.Popen([INGOT, "serve", "--model", model, "--port", str(self.port), "--device", "cpu",
                                         *options], stdout=self.log, stderr=self.log)
        self.samples = []
        self.began = time.monotonic()

    def look(self):
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        descriptors = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        self.samples.append((time.monotonic() - self.began, pages * resource.getpagesize(), descriptors))
        return self.samples[-1]

    async def wait_ready(self):
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended with code {self.process.returncode}: see {self.log.name}")
            with contextlib.suppress(OSError):
                status, _ = await whole(self.port, "GET", "/ready")
                if status == 200:
                    return
            await asyncio.sleep(0.05)

    def end(self):
        self.process.terminate()
        code = self.process.wait(timeout=120)
        if code != 130:  # ended by a signal, as asked
            sys.exit(f"the server ended with code {code}: see {self.log.name}")


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
    status, reader, writer = await send(port, method, path, body)
    text = await reader.read()
    writer.close()
    return status, text


def completion(model, prompt, stream):
    return {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "stream": stream}


async def streamed(port, body, pause=None, leave_after=None):
    """(text, seconds to the first piece), or None where the client left after so many pieces. Reads events that may
    be cut anywhere (chunks of the transfer coding are lines that are no event)."""
    began = time.monotonic()
    status, reader, writer = await send(port, "POST", "/v1/completions", body)
    try:
        if status != 200:
            return f"status {status}", 0
        text, first, pieces = "", None, 0
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                return text, first
            event = json.loads(line[6:])
            if "error" in event:
                return f"error {event['error']['message']}", 0
            text += event["choices"][0]["text"] if event["choices"] else ""
            first = first or time.monotonic() - began
            pieces += 1
            if leave_after is not None and pieces >= leave_after:
                return None
            if pause is not None:
                await asyncio.sleep(pause)
        return f"cut after {text!r}", 0
    finally:
        writer.close()


def rights(model):
    return {prompt: json.loads(run("generate", "--model", model, "--prompt", prompt, "--max-tokens", TOKENS, "--device",
                                   "cpu", "--json"))["text"] for prompt in PROMPTS}


async def watch(server, ended):
    while not ended.is_set():
        server.look()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ended.wait(), 1)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def load(options, folder):
    model = tiny_model(folder)
    right = rights(model)
    server = Server(model, folder, "--connections", str(options.streams + 64), "--connections-per-address",
                    str(options.streams + 64), "--queue", str(options.streams),
                    "--sequences", "64", "--context", "128")
    await server.wait_ready()
    name = json.loads((await whole(server.port, "GET", "/v1/models"))[1])["data"][0]["id"]
    before = server.look()
    ended = asyncio.Event()
    watching = asyncio.create_task(watch(server, ended))
    began = time.monotonic()
    prompts = [PROMPTS[i % len(PROMPTS)] for i in range(options.streams)]
    results = await asyncio.gather(*(streamed(server.port, completion(name, prompt, True)) for prompt in prompts),
                                   return_exceptions=True)
    seconds = time.monotonic() - began
    ended.set()
    await watching
    after = server.look()
    server.end()
    wrong = [(prompt, result) for prompt, result in zip(prompts, results)
             if isinstance(result, BaseException) or result[0] != right[prompt]]
    firsts = [result[1] for result in results if not isinstance(result, BaseException)]
    peak, most = max(sample[1] for sample in server.samples), max(sample[2] for sample in server.samples)
    lines = [f"{options.streams} clients, each with a connection of its own, asked at once for {TOKENS} greedy tokens as a stream "
             f"({len(PROMPTS)} prompts); 64 sequences at a time.", "",
             f"- {options.streams - len(wrong)} of {options.streams} got the text that `ingot generate` gives, whole.",
             f"- {seconds:.1f} s for all, {options.streams * TOKENS / seconds:.0f} tokens/s; first piece after "
             f"{percentile(firsts, 0.5):.1f} s (median), {percentile(firsts, 0.99):.1f} s (99th percentile): most of it is waiting in turn.",
             f"- The server's memory: {before[1] / 2**20:.0f} MiB before, {peak / 2**20:.0f} MiB at most "
             f"({(peak - before[1]) / options.streams / 1024:.1f} KiB a client), {after[1] / 2**20:.0f} MiB after; descriptors {before[2]}, {most}, {after[2]}."]
    return lines, [f"{prompt!r}: {result!r}" for prompt, result in wrong[:5]]


async def soak(options, folder):
    model = tiny_model(folder)
    right = rights(model)
    server = Server(model, folder, "--sequences", "16", "--context", "128")
    await server.wait_ready()
    name = json.loads((await whole(server.port, "GET", "/v1/models"))[1])["data"][0]["id"]
    before = server.look()
    ends = time.monotonic() + 60 * options.minutes
    counts = {"streamed": 0, "whole": 0, "slow": 0, "left": 0, "refused": 0}
    wrong = []

    async def client(seed):
        draw = random.Random(seed)
        while time.monotonic() < ends:
            prompt = draw.choice(PROMPTS)
            kind = draw.choices(["streamed", "whole", "slow", "left", "refused"], [40, 20, 10, 25, 5])[0]
            counts[kind] += 1
            try:
                if kind == "whole":
                    status, text = await whole(server.port, "POST", "/v1/completions", completion(name, prompt, False))
                    got = json.loads(text)["choices"][0]["text"] if status == 200 else f"status {status}"
                elif kind == "refused":
                    status, _ = await whole(server.port, "POST", "/v1/completions", {"model": name, "prompt": 7.5})
                    got = right[prompt] if status == 400 else f"status {status} instead of 400"
                elif kind == "left":
                    await streamed(server.port, completion(name, prompt, True), leave_after=draw.randint(0, TOKENS // 2))
                    continue
                else:
                    got, _ = await streamed(server.port, completion(name, prompt, True), pause=0.1 if kind == "slow" else None)
            except (OSError, ValueError, KeyError, IndexError) as error:
                got = repr(error)
            if got != right[prompt]:
                wrong.append(f"{kind}, {prompt!r}: {got!r}")

    ended = asyncio.Event()
    watching = asyncio.create_task(watch(server, ended))
    await asyncio.gather(*(client(seed) for seed in range(options.clients)))
    ended.set()
    await watching
    for _ in range(100):  # until the last connections are closed on the server's side, too
        after = server.look()
        if after[2] <= before[2]:
            break
        await asyncio.sleep(0.1)
    server.end()
    total = server.samples[-1][0]
    third = [[s[1] for s in server.samples if low <= s[0] / total < high] for low, high in ((1 / 3, 2 / 3), (2 / 3, 2))]
    middle, last = (statistics.median(part) for part in third)
    if last > max(1.05 * middle, middle + 2**23):
        wrong.append(f"memory grew from {middle / 2**20:.1f} to {last / 2**20:.1f} MiB")
    if after[2] > before[2]:
        wrong.append(f"{after[2]} descriptors are open, {before[2]} were before")
    lines = [f"{options.clients} clients for {options.minutes:g} minutes: {sum(counts.values())} requests ("
             + ", ".join(f"{number} {kind}" for kind, number in counts.items()) + ").", "",
             f"- {len(wrong)} wrong.",
             f"- The server's memory: {before[1] / 2**20:.1f} MiB before, median {middle / 2**20:.1f} MiB in the middle third, "
             f"{last / 2**20:.1f} MiB in the last, {max(s[1] for s in server.samples) / 2**20:.1f} MiB at most; descriptors {before[2]} before, "
             f"{max(s[2] for s in server.samples)} at most, {after[2]} after."]
    return lines, wrong[:5]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["load", "soak"])
    parser.add_argument("--streams", type=int, default=12800)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/serving")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.streams + 1024
    if options.what == "load" and allowed < wanted:
        if most != resource.RLIM_INFINITY and most < wanted:
            sys.exit(f"{options.streams} streams need {wanted} descriptors; the limit is {most} (ulimit -n)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    options.folder.mkdir(parents=True, exist_ok=True)
    lines, wrong = asyncio.run({"load": load, "soak": soak}[options.what](options, options.folder.resolve()))
    text = "\n".join([f"# `bench/serving.py {options.what}` ({time.strftime('%Y-%m-%d')})", "",
                      f"Commit {commit()}, {os.cpu_count()} CPUs, which the clients share.", "", *lines]) + "\n"
    print(text)
    if options.report:
        options.report.write_text(text)
    if wrong:
        sys.exit("\n".join(["wrong:", *wrong]))


if __name__ == "__main__":
    main()

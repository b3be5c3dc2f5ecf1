#!/usr/bin/env python3
"""A server under load: whether every client gets its text, and whether memory and descriptors stay bounded.

  serving.py load [--streams N] [--report FILE.md]      N clients stream at once; each must get its complete, right text
  serving.py soak [--minutes M] [--clients N] [--report FILE.md]
                                                        mixed traffic: slow readers, disconnecting clients, plain requests
  serving.py many [--adapters N] [--requests N] [--adapter-mib M] [--model M] [--report FILE.md]
                                                        random requests for N adapters, each with different weights
  serving.py adapters [--model M] [--repeats N] [--report FILE.md]
                                                        cost of adapters: step times, loading, 32 in a batch, 2,000 beside 5

All start `ingot serve` as a child process on the tiny recipe's model after 20 steps (made in --folder, by default build/serving;
`many` and `adapters` take another by --model), and connect over loopback. The right texts come from `ingot generate`, one prompt at
a time, before the load; for `many` from --sample of the adapters, and every other adapter is requested twice and must give the same
text. Memory and descriptors of the server are read from /proc each second. Exit code 1: a text was wrong or missing. For soak also
growth, by medians: the server used 1/20 (and 8 MiB) more memory in the last third of the time than in the middle third, or had more
descriptors open after every client had left than before the first came. For many also growth between the halves of the second pass
over all adapters, or more than twice --adapter-mib and 128 MiB above the beginning, or more than three descriptors per client. Times
are reported, not judged. `many` leaves the adapters in --folder: 10,000 of SmolLM2-135M are 9 GiB.
Needs ./run build. `ulimit -n` must allow one descriptor per client (12,800 streams: `ulimit -n 20000`).
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import resource
import statistics
import sys
import time

import serving_adapters
from repository import ROOT, commit, write_report
from served import ingot_server, percentile, run, streamed, tiny_model, whole

TOKENS = 32
PROMPTS = ["My fellow Americans,", "Tonight I ask the Congress to", "The state of the Union is", "We will not", "Our schools",
           "In the last year", "Mr. Speaker,", "The American people", "Every child", "Health care", "Our soldiers",
           "The economy", "I want to thank", "This is the", "Let us", "More than"]


def completion(model, prompt, stream):
    return {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "stream": stream}


def rights(model):
    return {prompt: json.loads(run("generate", "--model", model, "--prompt", prompt, "--max-tokens", TOKENS, "--device",
                                   "cpu", "--json"))["text"] for prompt in PROMPTS}


async def load(options, folder):
    model = tiny_model(folder)
    right = rights(model)
    server = ingot_server(model, folder, "--connections", str(options.streams + 64), "--connections-per-address",
                    str(options.streams + 64), "--queue", str(options.streams),
                    "--sequences", "64", "--context", "128")
    await server.wait_ready()
    name = json.loads((await whole(server.port, "GET", "/v1/models"))[1])["data"][0]["id"]
    before = server.look()
    ended = asyncio.Event()
    watching = asyncio.create_task(server.watch(ended))
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
             if isinstance(result, BaseException) or result.text != right[prompt]]
    firsts = [result.first for result in results if not isinstance(result, BaseException)]
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
    server = ingot_server(model, folder, "--sequences", "16", "--context", "128")
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
                    pause = 0.1 if kind == "slow" else None
                    got = (await streamed(server.port, completion(name, prompt, True), pause=pause)).text
            except (OSError, ValueError, KeyError, IndexError) as error:
                got = repr(error)
            if got != right[prompt]:
                wrong.append(f"{kind}, {prompt!r}: {got!r}")

    ended = asyncio.Event()
    watching = asyncio.create_task(server.watch(ended))
    await asyncio.gather(*(client(seed) for seed in range(options.clients)))
    ended.set()
    await watching
    for _ in range(100):  # until the server has closed the last connections, too
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


WHAT = {"load": load, "soak": soak, "many": serving_adapters.many, "adapters": serving_adapters.figures}


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("what", choices=list(WHAT))
    parser.add_argument("--streams", type=int, default=12800)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--adapters", type=int, default=10000)
    parser.add_argument("--requests", type=int, default=4000, help="adapters that `many` requests, each twice")
    parser.add_argument("--sample", type=int, default=64, help="adapters whose text is compared with `ingot generate`")
    parser.add_argument("--adapter-mib", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens of an answer, in `many` and `adapters`")
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
    lines, wrong = asyncio.run(WHAT[options.what](options, options.folder.resolve()))
    text = "\n".join([f"# `bench/serving.py {options.what}` ({time.strftime('%Y-%m-%d')})", "",
                      f"Commit {commit()}, {os.cpu_count()} CPUs, which the clients share; load "
                      f"{os.getloadavg()[1]:.1f} over the last five minutes.", "", *lines])
    write_report(text, options.report)
    if wrong:
        sys.exit("\n".join(["wrong:", *wrong]))


if __name__ == "__main__":
    main()

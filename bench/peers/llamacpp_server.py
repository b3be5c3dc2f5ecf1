#!/usr/bin/env python3
"""Compares the speed of `ingot serve` and llama.cpp's llama-server: the same GGUF file, machine, threads and clients.

  llamacpp_server.py --model FILE.gguf [--server PATH] [--precision bf16|f16|q8_0] [--threads N] [--streams 32]
                     [--rounds 3] [--report FILE.md]

Fetches and builds nothing: `./run build` makes ingot, `tools/llamacpp.sh --server` makes llama-server (the default is the one in
build/llamacpp). `ingot model convert` writes the model once in the chosen precision, and both serve that file.

First each server answers some prompts greedily, and their first CHECKED tokens must agree (rounding makes texts differ later; a wrong
model, template or sampler differs at once). Each round then starts ingot and llama-server one after the other, with one client that
sends its requests in sequence, and with `--streams` clients at once. All prompts differ, and neither server may use a prefix cache.
Tokens are those that the servers report in `usage`. The result is tokens per second from the first request to the end of the last
answer, prompts included, so the length of texts gives no advantage. Exit code 1: texts differ too early, or an answer is missing.
"""
import argparse
import asyncio
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from repository import INGOT, ROOT, commit, write_report  # noqa: E402
from served import Server, percentile, run, streamed, whole  # noqa: E402

CHECKED = 8  # tokens that must agree, for at least three quarters of the compared prompts
COMPARED = 16
# The storage and compute types of each program for a file of this precision (llama.cpp: type_traits_cpu of ggml-cpu,
# where activations are rounded to vec_dot_type; ingot: --weights and --dtype).
PRECISIONS = {
    "bf16": (["--weights", "stored", "--dtype", "bf16"], "weights and activations bf16 in both, sums in fp32; keys and values "
             "bf16 in ingot, f16 in llama.cpp (its default)"),
    "f16": (["--weights", "stored", "--dtype", "fp16"], "weights and activations f16 in both, sums in fp32; keys and values f16"),
    "q8_0": (["--weights", "stored", "--dtype", "bf16"], "weights q8_0 in both; activations bf16 in ingot (which unpacks weights), rounded to q8_0 in "
             "llama.cpp; keys and values bf16 in ingot, f16 in llama.cpp (its default)"),
}


class LlamaServer(Server):
    ready_path, end_code = "/health", 0


def prompts(number):
    """Beginnings of speeches, all different."""
    words = []
    for line in (ROOT / "data/sotu/heldout.jsonl").read_text().splitlines():
        words += json.loads(line)["text"].split()
    size = 24
    found = [" ".join(words[i * size:(i + 1) * size]) for i in range(min(number, len(words) // size))]
    if len(found) < number:
        sys.exit(f"data/sotu has {len(found)} prompts of {size} words; {number} are needed")
    return found


def request(name, prompt, tokens):
    return {"model": name, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}


async def start(kind, file, options):
    context, folder = options.tokens + 128, options.folder
    if kind == "ingot":
        server = Server([INGOT, "serve", "--model", file, "--device", "cpu", "--threads", options.threads, "--sequences",
                         options.streams, "--context", context, "--no-prefix-cache", *PRECISIONS[options.precision][0],
                         "--access-log", folder / "access.jsonl"], folder / "ingot.log")
    else:
        server = LlamaServer([options.server, "--model", file, "--host", "127.0.0.1", "--threads", options.threads,
                              "--threads-batch", options.threads, "--parallel", options.streams, "--ctx-size",
                              context * options.streams, "--no-cache-prompt", "--cache-ram", 0, "--no-ui",
                              "--device", "none"], folder / "llama-server.log")
    await server.wait_ready()
    server.name = json.loads((await whole(server.port, "GET", "/v1/models"))[1])["data"][0]["id"]
    return server


async def asked(server, prompt, tokens):
    answer = await streamed(server.port, request(server.name, prompt, tokens))
    if not answer.tokens:
        sys.exit(f"no whole answer to {prompt!r} ({server.log.name}): {answer.text}")
    return answer


async def texts_of(kind, file, options):
    server = await start(kind, file, options)
    texts = [(await asked(server, prompt, 48)).text for prompt in prompts(COMPARED)]
    server.end()
    return texts


def same_tokens(file, a, b):
    """The length of the common prefix of two texts in tokens."""
    ids = [json.loads(run("tokenize", "--model", file, "--text", text, "--json"))["ids"] if text else [] for text in (a, b)]
    return next((i for i, (x, y) in enumerate(zip(*ids)) if x != y), min(map(len, ids)))


async def timed(kind, file, options):
    """Tokens per second and median seconds to the first token, for one client and for many."""
    server = await start(kind, file, options)
    every = iter(prompts(4 + options.answers + options.streams * 2))
    for _ in range(4):  # warm-up: threads, memory pages and code
        await asked(server, next(every), 16)

    async def rate(work, clients):
        async def client(prompts):
            return [await asked(server, prompt, options.tokens) for prompt in prompts]
        began = time.monotonic()
        answers = sum(await asyncio.gather(*(client(prompts) for prompts in [work[i::clients] for i in range(clients)])), [])
        seconds = time.monotonic() - began
        return sum(answer.tokens for answer in answers) / seconds, percentile([answer.first for answer in answers], 0.5)

    single = await rate([next(every) for _ in range(options.answers)], 1)
    many = await rate([next(every) for _ in range(options.streams * 2)], options.streams)
    memory = server.look()[1]
    server.end()
    return {"single": single, "many": many, "memory": memory}


def version(server):
    """The version without a commit, which would be that of our repository."""
    words = subprocess.run([server, "--version"], capture_output=True, text=True)
    return re.search(r"version: *([^ \n]+)", words.stderr + words.stdout)[1]


def lines_of(rounds, same, file, options):
    def median(kind, what, part):
        return statistics.median(result[kind][what][part] for result in rounds)

    def spread(kind, what):
        values = [result[kind][what][0] for result in rounds]
        return f"{min(values):.0f} to {max(values):.0f}"

    processor = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [f"Commit {commit()}; {processor[1] if processor else 'unknown processor'}, {os.cpu_count()} CPUs, which the clients "
             f"share; {options.threads} threads each; load {load} at the end. llama-server: {version(options.server)}.", "",
             f"{file.name}, the same file for both. {PRECISIONS[options.precision][1]}.", "",
             f"Greedy answers to {COMPARED} prompts begin with the same tokens: {min(same)} at least, {statistics.median(same):g} by median, "
             f"of 48.", "",
             f"{len(rounds)} rounds, alternating, each with servers started anew; prompts of 24 words, none from a cache; answers of "
             f"{options.tokens} tokens at most; medians (and the least and the most of the rounds):", "",
             "| | ingot, tokens/s | llama-server, tokens/s | ratio | wanted | first token, s: ingot, llama-server |",
             "|---|---|---|---|---|---|"]
    for what, label, wanted in [("single", "one stream", 1.1), ("many", f"{options.streams} streams", 2.5)]:
        ours, theirs = median("ingot", what, 0), median("llama-server", what, 0)
        lines.append(f"| {label} | {ours:.1f} ({spread('ingot', what)}) | {theirs:.1f} ({spread('llama-server', what)}) | "
                     f"{ours / theirs:.2f} | {wanted:.1f} | {median('ingot', what, 1):.3f}, {median('llama-server', what, 1):.3f} |")
    memory = [statistics.median(result[kind]["memory"] for result in rounds) / 2**20 for kind in ("ingot", "llama-server")]
    return [*lines, "", f"Resident memory behind the work: {memory[0]:.0f} and {memory[1]:.0f} MiB."]


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--server", type=pathlib.Path, default=ROOT / "build/llamacpp/server/bin/llama-server")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="bf16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--answers", type=int, default=6, help="requests of the single client; each of many sends two")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/peers")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    for path in (options.model, options.server, INGOT):
        if not path.exists():
            sys.exit(f"{path} is not there; ./run build makes ingot, tools/llamacpp.sh --server makes llama-server")
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder.resolve() / f"{options.model.stem}-{options.precision}.gguf"
    if not file.exists():
        run("model", "convert", options.model, file, "--to", "gguf", "--dtype", options.precision)
    texts = [asyncio.run(texts_of(kind, file, options)) for kind in ("ingot", "llama-server")]
    same = [same_tokens(file, *pair) for pair in zip(*texts)]
    if sum(number >= CHECKED for number in same) < 0.75 * COMPARED:
        sys.exit("\n".join(["the texts differ too early:", *(f"{pair!r}" for pair in zip(*texts))]))
    rounds = []
    for _ in range(options.rounds):
        rounds.append({kind: asyncio.run(timed(kind, file, options)) for kind in ("ingot", "llama-server")})
        print(json.dumps(rounds[-1]), file=sys.stderr, flush=True)
    title = f"# `ingot serve` beside llama-server ({time.strftime('%Y-%m-%d')})"
    text = "\n".join([title, "", *lines_of(rounds, same, file, options), "",
                      f"`bench/peers/llamacpp_server.py {' '.join(sys.argv[1:])}`"])
    write_report(text, options.report)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The whole workflow on a real model, with public programs only. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot story.py [SmolLM2-135M-Instruct.gguf]     # tools/llamacpp.sh --model fetches it

Pulls SmolLM2 from a hub (on loopback, with the hub's URLs and the GGUF file's weights); tokenizes speeches; pretrains a tiny
model, kills the run and resumes it on two ranks; LoRA-fine-tunes SmolLM2; serves it, loads the adapter into the running server,
and calls both through OpenAI's Python client: plain, streamed, and with a JSON schema; merges; exports to Hugging Face's layout
and to GGUF. transformers, on the exported folder, must give the same 64 greedy tokens as the server.

Every step prints its result. Exit status 1 at the first failure.
"""
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
INGOT = os.environ.get("INGOT_EXECUTABLE", ROOT / "build/release/ingot")
NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
PROMPT = "My fellow Americans,"
TOKENS = 64
SCHEMA = {
    "type": "object",
    "properties": {
        "president": {"type": "string", "pattern": "^[A-Z][a-z]{2,12}$"},
        "year": {"type": "integer", "minimum": 1789, "maximum": 2026},
        "topics": {"type": "array", "items": {"enum": ["economy", "peace", "schools", "health"]}, "minItems": 1,
                   "maxItems": 3, "uniqueItems": True},
    },
    "required": ["president", "year", "topics"],
    "additionalProperties": False,
}


def say(text):
    print(f"story: {text}", flush=True)


def expect(condition, text):
    if not condition:
        sys.exit(f"story: FAILED: {text}")


def ingot(*arguments):
    done = subprocess.run([INGOT, *map(str, arguments)], capture_output=True, text=True)
    expect(done.returncode == 0, f"ingot {' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


class Hub(http.server.BaseHTTPRequestHandler):
    """The two URLs of a model hub that a pull needs, for the files of one folder."""
    folder = pathlib.Path()

    def do_GET(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        if path == f"/api/models/{NAME}/tree/main":
            files = [{"type": "file", "path": file.name, "size": file.stat().st_size} for file in self.folder.iterdir()]
            return self.answer(json.dumps(files).encode())
        prefix = f"/{NAME}/resolve/main/"
        file = self.folder / path.removeprefix(prefix)
        if not path.startswith(prefix) or "/" in path.removeprefix(prefix) or not file.exists():
            return self.send_error(404)
        self.answer(file.read_bytes())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def hub(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("FolderHub", (Hub,), {"folder": folder}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def pull(gguf, work):
    ingot("model", "convert", gguf, work / "hub", "--dtype", "fp32")
    with hub(work / "hub") as address:
        ingot("model", "pull", NAME, "--endpoint", address)
    expect(NAME in ingot("model", "list"), "the pulled model is not listed")
    say(f"{NAME} is pulled and listed")


def step_events(run):
    lines = (run / "events.jsonl").read_text().splitlines() if (run / "events.jsonl").exists() else []
    # The last line may be incomplete while the run continues.
    whole = [json.loads(line) for line in lines if line.endswith("}")]
    return [event for event in whole if event["type"] == "step"]


def pretrain(work):
    """A run that is killed and resumed on two ranks must have the losses of an uninterrupted one."""
    tokens = work / "speeches"
    counted = json.loads(ingot("data", "tokenize", ROOT / "data/sotu/train.jsonl", "--model", ROOT / "recipes/models/tiny",
                               "--out", tokens, "--quiet", "--json"))["tokens"]
    say(f"data/sotu is {counted} tokens")
    recipe = work / "tiny.yaml"
    recipe.write_text(json.dumps({
        "model": str(ROOT / "recipes/models/tiny"), "init": "random", "run_dir": str(work), "device": "cpu",
        "data": {"train": str(tokens), "order": "megatron", "sequence_length": 128}, "batch": {"global": 8}, "steps": 60,
        "determinism": "bitwise", "precision": "bf16", "optimizer": {"lr": 1.5e-3}, "checkpoint": {"every": 10}}))
    recipe = ["pretrain", recipe, "--quiet"]
    ingot(*recipe, "name=whole")
    while True:
        victim = subprocess.Popen([INGOT, *map(str, recipe), "name=killed"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        while not (work / "killed/checkpoints/step-20").exists() and victim.poll() is None:
            time.sleep(0.01)
        victim.kill()
        if victim.wait() == -signal.SIGKILL:
            break
        expect(victim.returncode == 0, f"the run ended before the kill with {victim.returncode}")
        shutil.rmtree(work / "killed")  # the run ended before the kill: try again
    ingot(*recipe, "name=killed", "parallel.dp=2", "--resume")
    whole, resumed = step_events(work / "whole"), step_events(work / "killed")
    last = {event["step"]: event["loss"] for event in resumed}
    expect([last[event["step"]] for event in whole] == [event["loss"] for event in whole],
           "the losses of the run that was killed and resumed by two ranks differ from those of the one let alone")
    expect(ingot("model", "inspect", work / "whole/model", "--hash").split()[-1] ==
           ingot("model", "inspect", work / "killed/model", "--hash").split()[-1], "the weights differ")
    say("killed, resumed by two ranks: 60 losses and the weights have the bits of an uninterrupted run")


def finetune(work):
    recipe = work / "speeches.yaml"
    recipe.write_text(json.dumps({
        "name": "speeches", "model": NAME, "run_dir": str(work), "device": "cpu", "precision": "fp32",
        "adapter": {"rank": 8, "alpha": 16, "targets": ["q_proj", "v_proj"]},
        "data": {"train": str(ROOT / "data/sotu/train.jsonl"), "format": "text", "sequence_length": 256},
        "optimizer": {"lr": 2e-3}, "batch": {"global": 4}, "steps": 12}))
    ingot("finetune", recipe, "--quiet")
    losses = [event["loss"] for event in step_events(work / "speeches")]
    expect(losses[-1] < losses[0], f"fine-tuning did not learn: {losses}")
    say(f"fine-tuned: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return work / "speeches/adapter"


@contextlib.contextmanager
def serve(work):
    (work / "adapters").mkdir()
    log = (work / "serve.log").open("w")
    server = subprocess.Popen([INGOT, "serve", "--model", NAME, "--adapters", work / "adapters", "--port", "0",
                               "--dtype", "fp32", "--context", "2048"], stdout=log, stderr=log)
    try:
        while not (found := re.search(r"http://127\.0\.0\.1:\d+\b", (work / "serve.log").read_text())):
            if server.poll() is not None:
                sys.exit(f"story: the server ended: {(work / 'serve.log').read_text()}")
            time.sleep(0.05)
        address = found.group()
        with urllib.request.urlopen(f"{address}/ready") as answer:
            expect(answer.status == 200, f"the server is not ready: {answer.status}")
        yield address
        server.terminate()
        expect(server.wait(timeout=60) == 130, f"the server's exit code is {server.returncode}")
    finally:
        server.kill()


def talk(address, adapter, work):
    """The texts that greedy decoding gives with the base and with the adapter."""
    import openai

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    before = [model.id for model in client.models.list()]
    shutil.copytree(adapter, work / "adapters/speeches")
    request = urllib.request.Request(f"{address}/v1/adapters", data=json.dumps({"name": "speeches"}).encode(),
                                     headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        expect(answer.status == 200, "the adapter cannot be loaded")
    after = [model.id for model in client.models.list()]
    expect("speeches" in after and "speeches" not in before, f"models before {before} and after {after}")
    say("the adapter was loaded into the running server")
    base = before[0]
    texts = {}
    for model in (base, "speeches"):
        whole = client.completions.create(model=model, prompt=PROMPT, max_tokens=TOKENS, temperature=0).choices[0].text
        pieces = client.completions.create(model=model, prompt=PROMPT, max_tokens=TOKENS, temperature=0, stream=True)
        streamed = "".join(chunk.choices[0].text for chunk in pieces if chunk.choices)
        expect(whole == streamed, f"{model}: streamed {streamed!r}, whole {whole!r}")
        texts[model] = whole
    expect(texts[base] != texts["speeches"], "the adapter has no effect")
    say(f"base: {texts[base]!r}")
    say(f"tuned: {texts['speeches']!r}")
    for model in (base, "speeches"):
        chat = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Who spoke to Congress, when, about what?"}], max_tokens=200,
            temperature=1, seed=7, response_format={"type": "json_schema",
                                                    "json_schema": {"name": "speech", "schema": SCHEMA, "strict": True}})
        check_schema(chat.choices[0])
        say(f"JSON of {model}: {chat.choices[0].message.content}")
    return texts["speeches"]


def check_schema(choice):
    import jsonschema

    expect(choice.finish_reason == "stop", f"the JSON's finish_reason is {choice.finish_reason}")
    jsonschema.validate(json.loads(choice.message.content), SCHEMA)


def export(adapter, tuned, work):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ingot("model", "merge", NAME, "--adapter", adapter, work / "merged", "--dtype", "fp32")
    ingot("model", "convert", work / "merged", work / "merged.gguf", "--dtype", "f16")
    again = json.loads(ingot("generate", "--model", work / "merged.gguf", "--prompt", PROMPT, "--max-tokens", 8, "--json"))
    expect(tuned.startswith(again["text"][:8]), f"the GGUF file generates {again['text']!r}")
    tokenizer = AutoTokenizer.from_pretrained(work / "merged")
    model = AutoModelForCausalLM.from_pretrained(work / "merged", dtype=torch.float32)
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    made = model.generate(ids, max_new_tokens=TOKENS, do_sample=False)[0, ids.shape[1]:]
    theirs = tokenizer.decode(made, skip_special_tokens=True)
    expect(theirs == tuned, f"transformers generates {theirs!r}, the server {tuned!r}")
    say(f"transformers, from the exported folder, gives the server's {len(made)} greedy tokens")


def main():
    gguf, = map(pathlib.Path, sys.argv[1:] or (ROOT / "build/llamacpp").glob("SmolLM2*.gguf"))
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        os.environ["INGOT_HOME"] = str(work / "home")
        pull(gguf, work)
        pretrain(work)
        adapter = finetune(work)
        with serve(work) as address:
            tuned = talk(address, adapter, work)
        export(adapter, tuned, work)
    say("complete")


if __name__ == "__main__":
    main()

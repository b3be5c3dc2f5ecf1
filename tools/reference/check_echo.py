#!/usr/bin/env python3
"""Log-probabilities of prompt tokens by `ingot serve`, compared with transformers and `ingot score`. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_echo.py [MODEL.gguf]

Two models are served in fp32: the tiny recipe's after 20 steps, and SmolLM2-135M-Instruct (the argument, or the file that
`tools/llamacpp.sh --model` stores in build/llamacpp). Requests are those of evaluation harnesses: token ids, `echo`, `logprobs`,
`max_tokens` 0 and 1, several prompts per request, one of them longer than a step's tokens. All are sent twice, so that the
prefix cache holds them. The comparisons:

* the log-probability of every token but the first (which has none), and that of the most likely token, with transformers';
* the same log-probabilities with those of `ingot score`;
* the sum over a continuation, computed as lm-evaluation-harness does (it drops the last token of `max_tokens` 1), with the sum by
  transformers, and whether the continuation is greedy, where the margin exceeds twice the tolerance.

The tolerance per token is 8 sqrt(30 * 1536) 2^-24 (fp32 rounding). Exit status 1 at the first difference.
"""
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
sys.path.insert(0, str(ROOT / "bench"))

import torch  # noqa: E402
from served import ingot_server, run, tiny_model, whole  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

BATCH_TOKENS = 48
# The bound of fp32 rounding over 30 layers of sums with up to 1536 terms, each with an error of about sqrt(n) 2^-24.
TOLERANCE = 8 * (30 * 1536) ** 0.5 * 2.0**-24
TEXTS = ["The state of the Union is strong, and we will not rest.", "Photosynthesis is the process by which plants",
         "def fibonacci(n):\n    ", "One"]
LONG = " ".join(["My fellow Americans, tonight I ask the Congress to do what is right for our schools."] * 6)


def check(condition, what):
    if not condition:
        sys.exit(what)


def score(folder, ids):
    """The log-probability of each token but the first, by `ingot score`."""
    reported = json.loads(run("score", "--model", folder, "--dtype", "fp32", "--device", "cpu", "--json", "--ids", ",".join(map(str, ids))))
    return [token["logprob"] for token in reported["tokens"]][1:]


async def ask(server, prompts, max_tokens):
    body = {"model": "served", "prompt": prompts, "echo": True, "logprobs": 2, "max_tokens": max_tokens, "temperature": 0}
    status, text = await whole(server.port, "POST", "/v1/completions", body)
    check(status == 200, f"status {status}: {text}")
    return [choice["logprobs"] for choice in json.loads(text)["choices"]]


def compare(ids, right, scored, reported, max_tokens):
    """The largest difference, and whether the margins allow to compare that the second half is greedy."""
    check(all(len(reported[key]) == len(ids) + max_tokens for key in reported), f"{len(ids)} tokens and {max_tokens}: {reported}")
    found, tops = reported["token_logprobs"], reported["top_logprobs"]
    check(found[0] is None and tops[0] is None, f"the first token: {reported}")
    worst = 0.0
    for place in range(1, len(ids)):
        row = right[place - 1]
        pairs = [(found[place], row[ids[place]].item()), (found[place], scored[place - 1]), (max(tops[place].values()), row.max().item())]
        worst = max([worst, *(abs(a - b) for a, b in pairs)])
        check(worst <= TOLERANCE, f"token {place} of {len(ids)}: {pairs} differ by more than {TOLERANCE:.1e}")
    second = range(max(1, len(ids) // 2), len(ids))
    taken = sum(found[second.start:-1] if max_tokens else found[second.start:])
    total = sum(right[place - 1][ids[place]].item() for place in second)
    check(abs(taken - total) <= len(second) * TOLERANCE, f"the second half of {ids}: {taken}, not {total}")
    clear = all(abs(right[place - 1].topk(2)[0].diff().item()) > 2 * TOLERANCE for place in second)
    greedy = all(found[place] == max(tops[place].values()) for place in second)
    check(not clear or greedy == all(right[place - 1].argmax().item() == ids[place] for place in second), f"whether the second half is greedy: {ids}")
    return worst, clear


async def check_model(folder, work):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [tokenizer(text)["input_ids"] for text in [*TEXTS, LONG]]
    with torch.no_grad():  # and one prompt whose second half is greedy
        prompts.append(model.generate(torch.tensor([prompts[0]]), max_new_tokens=len(prompts[0]), do_sample=False)[0].tolist())
        right = [model(torch.tensor([ids])).logits[0].double().log_softmax(-1) for ids in prompts]
    check(max(map(len, prompts)) > 2 * BATCH_TOKENS, "no prompt is longer than a step")
    scored = [score(folder, ids) for ids in prompts]
    server = ingot_server(folder, work, "--name", "served", "--dtype", "fp32", "--batch-tokens", str(BATCH_TOKENS),
                          "--access-log", work / "access.jsonl")
    found = []
    try:
        await server.wait_ready()
        for max_tokens in (0, 1, 0, 1):
            reported = await ask(server, prompts, max_tokens)
            found += [compare(*of, max_tokens) for of in zip(prompts, right, scored, reported)]
    finally:
        server.end()
    print(f"{folder.name}: {sum(map(len, prompts))} tokens of {len(prompts)} prompts, four times: log-probabilities differ by "
          f"{max(worst for worst, _ in found):.1e} at most; greedy or not agrees in {sum(clear for _, clear in found)} comparisons")


def main():
    source, = map(Path, sys.argv[1:] or (ROOT / "build/llamacpp").glob("SmolLM2*.gguf"))
    torch.set_num_threads(os.cpu_count())
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        tiny = tiny_model(work)
        folder = work / "smollm2"
        run("model", "convert", source, folder, "--dtype", "fp32")
        for model in (tiny, folder):
            asyncio.run(check_model(model, work))


main()

#!/usr/bin/env python3
"""Makes tests/golden/eval: results that `ingot eval` must reproduce, computed by other programs.

Writes a tokenizer for tests/golden/llama/a (a byte-level BPE of 131 tokens, trained on data/sotu), task files, and golden.json with
the log-likelihoods of choices, the greedy answers and their scores by transformers, peft and rouge-score. Choices are tokenized and
scored as lm-evaluation-harness does, in code written for this script. Needs torch, transformers, peft, tokenizers and rouge-score
(2.13.0, 5.x, 0.19, 0.23 and 0.1.2 made the committed files).

    tools/reference/make_eval_golden.py
"""
import json
import random
import re
import shutil
import string
import tempfile
from pathlib import Path

import torch
from peft import PeftModel
from rouge_score import rouge_scorer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "tests" / "golden" / "eval"
MODEL = ROOT / "tests" / "golden" / "llama" / "a"
SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>"]
CONTEXT = 256
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer():
    kept = set(string.ascii_letters + string.digits + string.punctuation + " \n")
    lines = (ROOT / "data" / "sotu" / "train.jsonl").read_text(encoding="utf-8").splitlines()[:200]
    texts = ["".join(c for c in json.loads(line)["text"] if c in kept) for line in lines]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    # "!" to "~" stand for themselves; then the byte-level characters of space and line feed.
    alphabet = [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a"]
    trainer = trainers.BpeTrainer(vocab_size=131, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == 131
    tokenizer.save(str(OUT / "tokenizer.json"), pretty=False)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[2], "chat_template": CHATML}
    (OUT / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def choice_tasks():
    rng = random.Random(7)
    words = "the people of this state have seen that peace and war are in our hands now".split()

    def words_of(n):
        return " ".join(rng.choice(words) for _ in range(n))

    tasks = [
        {"context": "The capital of the state is", "choices": ["peace", "war and the people", "our"], "answer": 1},
        {"context": "Question: what is seen?\nAnswer:", "choices": ["people", "the state"], "answer": "people"},
        {"context": "Trailing spaces  ", "choices": ["the people", "at peace", "x"], "answer": 2},
        {"context": "A line ends here\n", "choices": ["the", "then", "that which is"], "delimiter": "", "answer": 0},
        {"context": "", "choices": ["the people", "hands"], "answer": 0},
        {"context": "th", "choices": ["e people", "at war", " is"], "delimiter": "", "answer": 0},
        {"context": words_of(150), "choices": [words_of(3), words_of(9), "now"], "answer": 2, "note": "too long"},
        {"messages": [{"role": "user", "content": "Are we at peace?"}], "choices": ["Yes", "No", "Not now"], "answer": 1},
    ]
    for i in range(24):
        count = rng.randint(2, 5)
        choices = []
        while len(choices) < count:
            choice = words_of(rng.randint(1, 6))
            if choice not in choices:
                choices.append(choice)
        tasks.append({"id": i, "context": words_of(rng.randint(1, 40)), "choices": choices, "answer": rng.randrange(count)})
    return tasks


# As in lm-evaluation-harness: trailing white space moves to the continuation; the whole text is encoded and split.
def encode_pair(tokenizer, context, continuation):
    bare = context.rstrip()
    continuation = context[len(bare):] + continuation
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)
    if not bare:
        return [tokenizer.eos_token_id], encode(continuation)
    context_ids = encode(bare)
    return context_ids, encode(bare + continuation)[len(context_ids):]


def log_likelihood(model, context, continuation):
    ids = torch.tensor([context + continuation[:-1]])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[0].double(), -1)
    rows = logprobs[len(context) - 1:]
    return sum(rows[t, token].item() for t, token in enumerate(continuation))


def score_choices(model, tokenizer, task):
    encoded = []
    for choice in task["choices"]:
        if "messages" in task:
            text = tokenizer.apply_chat_template(task["messages"], tokenize=False, add_generation_prompt=True)
            encoded.append((tokenizer.encode(text, add_special_tokens=False), tokenizer.encode(choice, add_special_tokens=False)))
        else:
            encoded.append(encode_pair(tokenizer, task["context"], task.get("delimiter", " ") + choice))
    room = CONTEXT + 1 - max(len(continuation) for _, continuation in encoded)
    logprobs = [log_likelihood(model, context[-room:], continuation) for context, continuation in encoded]
    right = task["answer"] if isinstance(task["answer"], int) else task["choices"].index(task["answer"])

    def accuracy(lengths):
        scores = [logprob / length for logprob, length in zip(logprobs, lengths)]
        return int(scores.index(max(scores)) == right)

    return {
        "logprobs": logprobs,
        "tokens": [len(continuation) for _, continuation in encoded],
        "acc": accuracy([1] * len(logprobs)),
        "acc_norm": accuracy([len(choice) for choice in task["choices"]]),
        "acc_bytes": accuracy([len(choice.encode()) for choice in task["choices"]]),
        "acc_tokens": accuracy([len(continuation) for _, continuation in encoded]),
    }


def answer(model, tokenizer, task):
    if "messages" in task:
        text = tokenizer.apply_chat_template(task["messages"], tokenize=False, add_generation_prompt=True)
    else:
        text = task["prompt"]
    ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
    out = model.generate(ids, max_new_tokens=task["max_tokens"], do_sample=False, eos_token_id=2, pad_token_id=0)
    words = tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    for stop in task.get("stop", []):
        words = words.split(stop)[0]
    return words


def answer_tasks(base, tokenizer):
    tasks = [
        {"prompt": "We have seen", "max_tokens": 12},
        {"prompt": "The state of the people", "max_tokens": 20},
        {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 9},
        {"prompt": "Stop before a part of it", "max_tokens": 16},
        {"prompt": "peace", "max_tokens": 10, "regex": "[A-Za-z]{3}"},
        {"prompt": "1, 2, 3,", "max_tokens": 3, "json": True, "regex": "no such answer"},
    ]
    given = [answer(base, tokenizer, task) for task in tasks]
    tasks[0]["reference"] = "\n" + given[0].strip() + " "
    tasks[1]["reference"] = ["the people of the state", given[1][:12] + " the end"]
    tasks[2]["reference"], tasks[2]["extract"] = given[2][2:5], "^..\\K..."
    tasks[3]["stop"] = ["never in it", given[3][5:7]]
    tasks[3]["reference"] = given[3].split(given[3][5:7])[0]
    return tasks


def score_answer(task, text, scorer):
    scores = {}
    references = task.get("reference", [])
    references = [references] if isinstance(references, str) else references
    if references:
        compared = text
        if "extract" in task:
            compared = text[2:5]  # the match of the only pattern in use
        scores["exact_match"] = int(any(compared.strip() == reference.strip() for reference in references))
        scores["rougeL"] = max(scorer.score(reference, text)["rougeL"].fmeasure for reference in references)
    if "regex" in task:
        scores["regex_match"] = int(re.search(task["regex"], text) is not None)
    if task.get("json"):
        try:
            json.loads(text.strip())
            scores["json_valid"] = 1
        except ValueError:
            scores["json_valid"] = 0
    return scores


def rouge_pairs(scorer):
    rng = random.Random(3)
    words = ["The", "cat", "sat", "on", "the", "mat", "2", "U.S.", "don't", "caf\u00e9", "\u212a", "\u0130s", "na\u00efve", "\u4e2d"]
    pairs = [
        ("The cat sat on the mat.", "the cat is on the mat"),
        ("", "something"),
        ("something", ""),
        ("...", "!!!"),
        ("A b  c\td\ne", "e d c b a"),
        ("\u212aelvin 273", "kelvin 273"),
        ("\u0130stanbul", "istanbul"),
        ("STRASSE stra\u00dfe", "strasse stra e"),
        ("snake_case and kebab-case", "snake case and kebab case"),
    ]
    for _ in range(40):
        pairs.append(tuple(" ".join(rng.choice(words) for _ in range(rng.randint(1, 30))) for _ in range(2)))
    return [[text, reference, scorer.score(reference, text)["rougeL"].fmeasure] for text, reference in pairs]


def write_lines(name, tasks):
    (OUT / name).write_text("".join(json.dumps(task) + "\n" for task in tasks))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    make_tokenizer()
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
    with tempfile.TemporaryDirectory() as folder:
        for path in list(MODEL.glob("*.json")) + [MODEL / "model.safetensors"] + list(OUT.glob("tokenizer*.json")):
            shutil.copy(path, folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        questions = answer_tasks(base, tokenizer)
        choices = choice_tasks()
        golden = {"choices": [], "answers": [], "rouge": rouge_pairs(scorer)}
        for name in ("base", "tuned"):
            model = base if name == "base" else PeftModel.from_pretrained(base, MODEL / "lora").eval()
            for i, task in enumerate(choices):
                if name == "base":
                    golden["choices"].append({})
                golden["choices"][i][name] = score_choices(model, tokenizer, task)
            for i, task in enumerate(questions):
                if name == "base":
                    golden["answers"].append({})
                text = answer(model, tokenizer, task)
                golden["answers"][i][name] = {"text": text, **score_answer(task, text, scorer)}
    write_lines("choices.jsonl", choices)
    write_lines("questions.jsonl", questions)
    (OUT / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    for kind in ("choices", "answers"):
        print(kind, len(golden[kind]), json.dumps(golden[kind][0]))


if __name__ == "__main__":
    main()

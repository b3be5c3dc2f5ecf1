"""llama.cpp for the oracles: its converter (importable as `conversion`) and, after tools/llamacpp.sh --build, its library through
the program llamacpp_run."""
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/llamacpp"
PROGRAM = FOLDER / "llamacpp_run"
SOURCE = next(FOLDER.glob("llama_cpp_python-*/vendor/llama.cpp"), None)
if SOURCE is None:
    sys.exit("llama.cpp's source is not there: tools/llamacpp.sh")
VERSION = "llama.cpp of llama-cpp-python " + re.search(r"python-([\d.]+)/", str(SOURCE))[1]
sys.path[:0] = [str(SOURCE / "gguf-py"), str(SOURCE)]

FILE_TYPES = {"q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q4_k": 14, "q6_k": 18}  # llama_ftype


def is_built():
    """Whether the library was built; prints a message when it was not."""
    if not PROGRAM.exists():
        print(f"LEFT OUT: {VERSION} itself is not built here (tools/llamacpp.sh --build)")
    return PROGRAM.exists()


def try_to_run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          env=os.environ | {"GGML_NO_BACKTRACE": "1"})


def run(*arguments):
    done = try_to_run(*arguments)
    if done.returncode != 0:
        sys.exit(f"llamacpp_run {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def comma(ids):
    return ",".join(map(str, ids))


def logits(model, ids, work):
    """[T, vocab] in fp32."""
    out = work / "llamacpp.f32"
    run("logits", model, comma(ids), out)
    return np.fromfile(out, np.float32).reshape(len(ids), -1)


def greedy(model, ids, count, work):
    """The generated ids, and the logits [count, vocab] from which they were chosen."""
    out = work / "llamacpp.f32"
    chosen = [int(word) for word in run("greedy", model, comma(ids), count, out).split(",")]
    return chosen, np.fromfile(out, np.float32).reshape(count, -1)


def tokenize(model, texts, add_special, work):
    """The ids of each text. Special tokens in the text are recognised, and with `add_special` the tokenizer adds its own."""
    file = work / "texts"
    with open(file, "wb") as out:
        for text in texts:
            out.write(b"%d\n%b" % (len(text.encode()), text.encode()))
    return [[int(word) for word in line.split(",") if word] for line in run("tokenize", model, file, int(add_special)).splitlines()]


def quantize(model, out, dtype):
    run("quantize", model, out, FILE_TYPES[dtype])

"""The repository of the benchmarks: its executable, its commit, and its speeches (data/sotu) as tokens."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
INGOT = pathlib.Path(os.environ.get("INGOT_EXECUTABLE", ROOT / "build/release/ingot"))


def commit():
    """The working tree's commit, followed by "-dirty" when the tree has changes."""
    return subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], check=True, capture_output=True,
                          text=True).stdout.strip()


def processor():
    """The processor's name, family and model, and the number of CPUs that this process may use."""
    known = dict(line.split(":", 1) for line in open("/proc/cpuinfo") if ":" in line)
    fields = {key.strip(): value.strip() for key, value in known.items()}
    return (f"{fields.get('model name', 'unknown processor')} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}), "
            f"{len(os.sched_getaffinity(0))} CPUs")


def write_report(text, report):
    """Prints a text, and writes it to the file `report`, if there is one."""
    print(text)
    if report:
        report.write_text(text + "\n")


def vocabulary(name):
    """The tokenizer `name`: a folder of recipes/models, or one of llama.cpp's vocabularies (./run oracles fetches them)."""
    folder = ROOT / "recipes/models" / name
    if folder.exists():
        return folder
    file, = (ROOT / "build/llamacpp").glob(f"*/vendor/llama.cpp/models/ggml-vocab-{name}.gguf")
    return file


def tokens(name, prefix, part="train"):
    """The tokens of a part of the speeches (train, heldout) in prefix.idx and prefix.bin, made when missing."""
    if not prefix.with_suffix(".idx").exists():
        subprocess.run([INGOT, "data", "tokenize", ROOT / f"data/sotu/{part}.jsonl", "--model", vocabulary(name), "--out",
                        prefix, "--quiet"], check=True)
    return prefix

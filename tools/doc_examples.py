#!/usr/bin/env python3
"""Runs the examples of docs/serving/*.md literally, except for the port: doc_examples.py MODEL [PAGE...].

Blocks fenced as sh, python and javascript are run by bash, build/clients/python and node with build/clients/javascript
(tools/clients.sh makes both); blocks of one language and page run together in order. Indented blocks are not run.
MODEL (SmolLM2-135M-Instruct as a GGUF file or a folder; a random model would not end JSON) is served as SmolLM2-135M-Instruct with an
adapter called poet. The first block of keys.md creates the key file of the server that the rest of the page uses.
Exit code 1 when an example fails: a curl command gets an error, an exception is raised, or a block prints nothing.
"""
import asyncio
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import serving_adapters  # noqa: E402
from served import ingot_server, run  # noqa: E402

CLIENTS = ROOT / "build/clients"
FENCE = re.compile(r"^```(sh|python|javascript)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "--- the next block ---"
BETWEEN = {"sh": f"printf '%s' '{MARK}'", "python": f"print('{MARK}')", "javascript": f"console.log('{MARK}');"}


def tried(page, language, blocks, port, folder, is_silent=False):
    """Runs the blocks in `folder`. True when they end without error and each prints something (unless silent); prints the failure."""
    text = f"\n{BETWEEN[language]}\n".join(blocks).replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    if language == "sh":  # the pages' curl commands do not fail on HTTP errors, so the answers are checked here
        command = ["bash", "-euo", "pipefail", "-c", 'curl() { command curl --fail-with-body -sS "$@"; echo; }\n' + text]
    elif language == "python":
        command = [CLIENTS / "python/bin/python", "-c", text]
    else:
        script = CLIENTS / "javascript/example.mjs"
        script.write_text(text)
        command = ["node", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    outputs = done.stdout.split(MARK)
    is_right = done.returncode == 0 and len(outputs) == len(blocks) and (is_silent or all(map(str.strip, outputs)))
    print(json.dumps({"page": page.name, "language": language, "result": "runs" if is_right else "fails"}), flush=True)
    if not is_right or "--show" in sys.argv:
        print(text, done.stdout, done.stderr, sep="\n")
    return is_right


def blocks_of(page):
    found = FENCE.findall(page.read_text())
    return {language: [text for kind, text in found if kind == language] for language in ("sh", "python", "javascript")}


async def try_page(page, model, adapters, folder):
    blocks = blocks_of(page)
    options = ["--name", "SmolLM2-135M-Instruct", "--adapters", adapters, "--access-log", folder / "access.jsonl"]
    results = []
    if page.name == "keys.md":
        results.append(tried(page, "sh", [blocks["sh"].pop(0)], 0, folder, is_silent=True))
        options += ["--api-key-file", folder / "keys"]
    server = ingot_server(model, folder, *options)
    try:
        await server.wait_ready()
        for language, texts in blocks.items():
            if texts:
                results.append(tried(page, language, texts, server.port, folder))
    finally:
        server.end()
    return all(results)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--show"]
    if not arguments:
        sys.exit(__doc__)
    if not (CLIENTS / "javascript/node_modules/openai").exists():
        sys.exit("OpenAI's clients are not there: tools/clients.sh fetches them")
    model = pathlib.Path(arguments[0]).resolve()
    pages = [pathlib.Path(page) for page in arguments[1:]] or sorted((ROOT / "docs/serving").glob("*.md"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shape = json.loads(run("model", "inspect", model, "--json"))
        made, = serving_adapters.make_adapters(folder / "adapters", shape, 1)
        shutil.move(folder / "adapters" / made, folder / "adapters/poet")
        os.chdir(folder)
        wrong = [page.name for page in pages if not asyncio.run(try_page(page.resolve() if page.is_absolute() else ROOT / page, model,
                                                                         folder / "adapters", folder))]
    if wrong:
        sys.exit(f"examples fail in {', '.join(wrong)}")
    print("doc examples: all run")


if __name__ == "__main__":
    main()

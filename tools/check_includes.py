#!/usr/bin/env python3
"""Checks every #include under src/ against the table of allowed edges in docs/architecture.md.

The table is read from the page, so the page is the rule: a row names one or several folders and what they may include.
A cell may contain folder names, `all`, and file patterns in backquotes (`ops/*_bytes.h`). It also checks that our headers do not
include heavy headers. `--self-test` runs the checks below on invented trees.
"""
import argparse
import fnmatch
import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
HEAVY = re.compile(r"^(nlohmann/json\.hpp|yaml-cpp/|spdlog/|CLI/|boost/beast|boost/asio|pcre2)")
NOT_FOLDERS = {"", "nothing of ours", "its own vendor's headers"}


class Table:
    """Allowed edges: folder pattern -> (folders, file patterns); None for folders means everything."""

    def __init__(self, markdown):
        self.rows = {}
        lines = iter(markdown.splitlines())
        for line in lines:
            if re.match(r"\|\s*folder\s*\|\s*may include\s*\|", line):
                break
        else:
            raise ValueError("no table with the columns 'folder' and 'may include'")
        cells = []
        for line in lines:
            if not line.startswith("|"):
                break
            if not re.match(r"\|[\s-]+\|", line):
                cells.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        names = {name.strip() for left, _ in cells for name in left.split(",")}
        for left, right in cells:
            for name in left.split(","):
                self.rows[name.strip()] = self._parse(right, names)

    @staticmethod
    def _parse(cell, names):
        files = re.findall(r"`([^`]+)`", cell)
        if cell == "all":
            return None, []
        folders = set()
        for item in re.sub(r"`[^`]+`|\([^)]*\)", "", cell).split(","):
            item = re.sub(r"^(and|the tensor-free)\b\s*", "", re.sub(r"^and\s+", "", item.strip())).strip()
            if item in names:
                folders.add(item)
            elif item not in NOT_FOLDERS:
                raise ValueError(f"the table's cell '{cell}' names '{item}', which is not a folder of the table")
        return folders, files

    def row_of(self, path):
        """The row of a file: that of its folder including the subfolder if there is one, else that of the top folder."""
        for folder in ("/".join(path.parts[:2]), path.parts[0]):
            for row in self.rows:
                if fnmatch.fnmatch(folder, row):
                    return row
        return None


def folder_of(path):
    """backend/cpu/x.cpp -> backend/cpu; models/decoder/x.cpp -> models/decoder; ops/x.h -> ops."""
    return "/".join(path.parts[:-1][:2])


def check(src, table):
    problems = []
    files = sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".inc"))
    for file in files:
        path = file.relative_to(src)
        folder = folder_of(path)
        row = table.row_of(path)
        if row is None:
            problems.append(f"{path}:1: folder '{folder}' is not in the table of docs/architecture.md")
            continue
        folders, patterns = table.rows[row]
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quote, name = match.groups()
            if file.suffix == ".h" and HEAVY.match(name):
                problems.append(f"{path}:{number}: heavy header <{name}> in a header; include it in a .cpp")
            if not (src / name).is_file():
                if quote == '"':
                    problems.append(f'{path}:{number}: "{name}" is not under src/; our includes are written from there')
                continue
            target = table.row_of(Path(name))
            same = folder_of(Path(name)) == folder if "*" in row else target == row
            if folders is None or same or target in folders:
                continue
            if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                continue
            allowed = ", ".join(sorted(folders) + patterns) or "nothing of ours"
            problems.append(f'{path}:{number}: {folder} may not include "{name}" (allowed: {allowed})')
    return problems, len(files)


def self_test():
    table = Table(
        "| folder | may include |\n|---|---|\n| base | nothing of ours |\n| text, ops | base |\n"
        "| backend/* | ops (contracts), base, its own vendor's headers |\n"
        "| ops/testing | ops, base |\n| plan | base, and the tensor-free `ops/*_bytes.h` |\n| cli | all |\n"
    )
    cases = {  # file: (its include line, whether the checker must complain)
        "base/a.h": ('#include "ops/add.h"', True),
        "base/b.h": ("#include <vector>", False),
        "base/c.h": ("#include <nlohmann/json.hpp>", True),
        "base/d.h": ("#include <nlohmann/json_fwd.hpp>", False),
        "base/e.cpp": ("#include <nlohmann/json.hpp>", False),
        "ops/add.h": ('#include "base/b.h"', False),
        "ops/add_bytes.h": ('#  include "text/t.h"', True),
        "text/t.h": ('#include "text/missing.h"', True),
        "backend/cpu/x.cpp": ('#include "ops/add.h"', False),
        "backend/gpu/x.cpp": ('#include "backend/cpu/x.h"', True),
        "backend/cpu/x.h": ('#include "backend/cpu/y.h"', False),
        "backend/cpu/y.h": ('#include "base/b.h"', False),
        "plan/p.cpp": ('#include "ops/add_bytes.h"', False),
        "plan/q.cpp": ('#include "ops/add.h"', True),
        "ops/testing/t.h": ('#include "ops/add.h"', False),
        "ops/u.h": ('#include "ops/testing/t.h"', True),
        "backend/gpu/norm/n.cpp": ('#include "backend/gpu/x.h"', False),
        "backend/gpu/x.h": ("", False),
        "cli/main.cpp": ('#include "ops/add.h"', False),
        "stray/s.cpp": ("", True),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, (line, _) in cases.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(line + "\n", encoding="utf-8")
        problems, count = check(Path(folder), table)
    assert count == len(cases), count
    complained = {problem.split(":")[0] for problem in problems}
    expected = {name for name, (_, bad) in cases.items() if bad}
    assert complained == expected, (complained ^ expected, problems)
    try:
        Table("| folder | may include |\n|---|---|\n| base | basement |\n")
    except ValueError:
        pass
    else:
        raise AssertionError("a cell that names an unknown folder was accepted")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        return self_test()
    root = Path(__file__).resolve().parent.parent
    table = Table((root / "docs/architecture.md").read_text(encoding="utf-8"))
    problems, count = check(root / "src", table)
    print("\n".join(problems + [f"include edges: {count} files, {len(problems)} problems"]))
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

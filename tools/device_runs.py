#!/usr/bin/env python3
"""Adds to bench/reports/device_runs.tsv the ops that a report of tools/gpu_check shows to be right on a GPU: one line per op and
architecture, from the op's last run. The executable then no longer warns at start on this architecture, and
docs/support-matrix.md shows it.

  device_runs.py bench/reports/NAME.json      NAME.json of `ingot bench report`
  device_runs.py --self-test"""
import json
import sys
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "bench/reports/device_runs.tsv"


def runs(report, name):
    """{(architecture, op): (date, commit, report)} of the pieces that compared ops on a GPU."""
    found = {}
    for piece in sorted(report["pieces"], key=lambda piece: piece["time"]):
        result = piece.get("result", {})
        if piece["piece"].startswith("ops-") and result.get("arch", "").startswith(("sm_", "gfx")):
            for op in result["ops"]:
                found[result["arch"], op] = (piece["time"][:10], piece["commit"], name)
    return found


def merge(table, found):
    """The table's text with the found runs added; later dates replace earlier ones."""
    lines = table.splitlines()
    heads = [line for line in lines if line.startswith(("#", "architecture\t"))]
    rows = {}
    for line in lines[len(heads) :]:
        architecture, op, *rest = line.split("\t")
        rows[architecture, op] = tuple(rest)
    for key, row in found.items():
        rows[key] = max(rows.get(key, row), row)
    return "\n".join(heads + ["\t".join((*key, *row)) for key, row in sorted(rows.items())]) + "\n"


def self_test():
    def piece(name, architecture, ops, time):
        result = {"arch": architecture, "ops": ops}
        return {"piece": name, "time": time, "commit": "abc", "status": "finished", "result": result}

    report = {
        "pieces": [
            piece("ops-1", "sm_90", ["glu", "add"], "2026-11-22T01:02:03Z"),
            piece("ops-2", "avx512", ["rope"], "2026-11-22T01:02:03Z"),
            piece("models-llama", "sm_90", ["rope"], "2026-11-22T01:02:03Z"),
            {"piece": "ops-3", "time": "2026-11-22T01:02:03Z", "commit": "abc", "status": "failed", "message": "x"},
        ]
    }
    found = runs(report, "r.json")
    assert sorted(found) == [("sm_90", "add"), ("sm_90", "glu")], found
    empty = "# what\narchitecture\top\tdate\tcommit\treport\n"
    table = merge(empty, found)
    assert table == empty + "sm_90\tadd\t2026-11-22\tabc\tr.json\nsm_90\tglu\t2026-11-22\tabc\tr.json\n", table
    assert merge(table, {("sm_90", "glu"): ("2026-11-21", "old", "q.json")}) == table
    assert merge(table, {("sm_90", "glu"): ("2026-11-23", "new", "s.json")}).count("new") == 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    path = Path(sys.argv[1])
    found = runs(json.loads(path.read_text(encoding="utf-8")), path.name)
    if not found:
        print(f"{path}: no op was compared on a GPU")
        return 1
    TABLE.write_text(merge(TABLE.read_text(encoding="utf-8"), found), encoding="utf-8")
    print(f"{len(found)} ops on {' '.join(sorted({key[0] for key in found}))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

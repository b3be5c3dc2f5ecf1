#!/usr/bin/env python3
"""Runs a command under NVIDIA's Nsight Compute (ncu) and prints its ten longest kernels as one JSON object.

  gpu_check_ncu.py COMMAND [ARGUMENT...]

Of the launches of a kernel with the same grid the longest counts. Metrics as Nsight Compute's documentation names them; its CSV has a
line of names, one of units (base units: ns, %), and one for each launch.
"""
import csv
import io
import json
import subprocess
import sys
import tempfile

METRICS = {
    "ms": "gpu__time_duration.sum",
    "memory_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "compute_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
}
MOST = 10


def kernels_of(text):
    """text: what ncu wrote. Raises ValueError where it is not as described above."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise ValueError("ncu wrote no table: " + (lines[-1] if lines else "nothing"))
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[begin:]))))[1:]  # after the units
    kernels = {}
    for row in rows:
        found = {name: float(row[metric].replace(",", "")) for name, metric in METRICS.items()}
        found["ms"] /= 1e6
        key = row["Kernel Name"], row["Grid Size"]
        known = kernels.setdefault(key, {"kernel": key[0], "grid": key[1], "launches": 0, **found})
        known["launches"] += 1
        if found["ms"] > known["ms"]:
            known.update(found)
    return sorted(kernels.values(), key=lambda kernel: -kernel["ms"])[:MOST]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as log:
        done = subprocess.run(["ncu", "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS.values()),
                               "--log-file", log.name, *sys.argv[1:]], stdout=sys.stderr)
        text = log.read()
    try:
        kernels = kernels_of(text)
    except (ValueError, KeyError) as error:
        sys.exit(f"error: {error}")
    print(json.dumps({"kernels": kernels}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

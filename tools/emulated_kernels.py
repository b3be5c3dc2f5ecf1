"""The table tools/emulated_kernels.tsv of kernels that ran as the code of a real GPU target in an emulator, and the launches
that tests/backend/gpu/record saved for them. tools/emulate_amd.py and tools/emulate_ptx.py write the table."""
import re
from pathlib import Path

import device_code

TABLE = Path(__file__).resolve().parent / "emulated_kernels.tsv"
COLUMNS = ("source", "kernel", "target", "ops", "case", "state", "detail")
TITLE = (
    "# Kernels in emulators and in the simulation: AMD's machine code (tools/emulate_amd.py), NVIDIA's PTX "
    "(tools/emulate_ptx.py)."
)


def read_launches(folder):
    """The launches of a folder of record_launches, as dictionaries."""
    for line in (folder / "launches.tsv").read_text(encoding="utf-8").splitlines():
        kernel, source, ops, op, case, x, y, threads, dynamic, base, args, regions = line.split("\t")
        split_regions = [region.split(":") for region in regions.split(",")]
        yield {
            "kernel": kernel, "source": source, "ops": ops, "case": f"{op}: {case}", "x": int(x), "y": int(y),
            "threads": int(threads), "dynamic_shared_bytes": int(dynamic), "base": int(base), "args": args,
            "regions": [(int(at), int(size), kind, float(share)) for at, size, kind, share in split_regions],
        }  # fmt: skip


def sizes_on(folder, target):
    """{kernel: its grid, threads and dynamic shared memory} of the same launches on a target whose launches differ."""
    names = ("x", "y", "threads", "dynamic_shared_bytes")
    rows = [line.split("\t") for line in (folder / f"launches.{target}.tsv").read_text(encoding="utf-8").splitlines()]
    return {row[0]: dict(zip(names, map(int, row[1:]))) for row in rows}


def is_for(kernel, target):
    """Whether a target has a kernel's instructions, and launches it: AMD's GPUs never launch large tiles of products, whose
    code on gfx1100 has the sizes of other tiles (backend/gpu/arch/tuning.cpp)."""
    launched = not (target == "gfx1100" and kernel.endswith("_large"))
    return launched and target in device_code.ONLY_ON.get(kernel, {target})


def compiled():
    """The (source, kernel, target) of the table of compiled code."""
    return device_code.read_table(device_code.TABLE.read_text(encoding="utf-8"))[0].keys()


# Launched beside a vendor's library alone, which the recorder does not have: for cuDNN before 9.24
# (tests/backend/gpu/vendor_attention_test.cpp runs it in the simulation).
BESIDE_LIBRARIES = {"sequence_tables"}


def never_launched(launches, kernels, vendor):
    """Names of compiled kernels that match the regular expression, are not empty on all targets of the vendor ("sm_" or "gfx"), and
    have no launch."""
    known = {kernel for _, kernel, target in compiled() if re.search(kernels, kernel) and target.startswith(vendor)}
    known = {kernel for kernel in known if any(at.startswith(vendor) for at in device_code.ONLY_ON.get(kernel, {vendor}))}
    return sorted(known - {launch["kernel"] for launch in launches} - BESIDE_LIBRARIES)


def read():
    """{(source, kernel, target): (ops, case, state, detail)} of the table."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    rows = [line.split("\t") for line in lines if line[0] != "#" and not line.startswith("source\t")]
    return {tuple(row[:3]): tuple(row[3:]) for row in rows}


def update(rows):
    """Replaces the table's rows of the kernels that ran, and removes rows of kernels that no longer exist."""
    known = compiled()
    table = {key: row for key, row in read().items() if key in known} | rows
    lines = [TITLE, "\t".join(COLUMNS)] + ["\t".join((*key, *row)) for key, row in sorted(table.items())]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")

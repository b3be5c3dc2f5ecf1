#!/usr/bin/env python3
"""Compares the device code of a build with tools/device_code.tsv: for each kernel and target its registers, spills,
scratch, shared memory and matrix-core instructions.

  device_code.py --check [FOLDER]    fails where the code has become worse (below), and where a tool is missing
  device_code.py --update [FOLDER]   writes the table for the targets that FOLDER has; review the difference, commit it
  device_code.py --self-test         tests the checker

FOLDER is the build's device folder (default build/device/src/backend/gpu/device; `./run device-code` makes it) and contains
STEM.TARGET for each source STEM.gpu.cpp. These differences fail, by kernel and target:
- more spilled registers, scratch (stack) or static shared memory than in the table;
- fewer blocks per compute unit than the table's numbers give: by registers, waves and shared memory, with the most dynamic shared
  memory of the kernel's launches in tools/gpu_budgets.tsv;
- lost matrix-core instructions, or none on one target and some on another that has such instructions;
- kernels that are missing in the table or in the code.
When the code was made by another compiler version than the table names, spills and occupancy may differ. Then only scratch where
the table has none, more shared memory, lost matrix-core instructions and missing kernels fail; other differences are reported.

AMD's numbers come from the code object's notes, and its instructions are counted in the disassembly by llvm-objdump-22 (package
llvm-22). NVIDIA's numbers come from the cubin's .nv.info, and its instructions are counted in the machine code, since compilers
come without the toolkit's disassembler."""
import argparse
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tools/device_code.tsv"
BUDGETS = ROOT / "tools/gpu_budgets.tsv"
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950", "gfx1100")
# vector registers per thread (with accumulation registers; NVIDIA's registers), scalar registers per wave, spilled
# registers, bytes of scratch per thread and of static shared memory per block, threads per block, matrix-core
# instructions
FIELDS = ("registers", "scalars", "spills", "scratch", "shared", "threads", "matrix")
MATRIX = {"gfx9": r"^v_mfma_", "gfx11": r"^v_wmma_"}
# Kernels with instructions that only some targets have (gemm/mma8.h, target/warpgroup.h in src/backend/gpu). On other targets
# they are empty and not launched.
ONLY_ON = {
    kernel: {"sm_90", "sm_100", "gfx942", "gfx950"}
    for kernel in ("linear_fp8", "linear_fp8_backward_input", "linear_fp8_backward_input_e5m2")
} | {
    f"flash_sm90_{kernel}{d}": {"sm_90"} for kernel in ("", "dq_", "dkv_") for d in (64, 128)
}
# An instruction has 16 bytes from sm_80 to sm_100, with its operation in the lowest 9 bits. These are the codes that
# nvdisasm 13.1 shows as HMMA, IMMA, DMMA, HGMMA, IGMMA and QGMMA.
NVIDIA_MATRIX = {0x03C, 0x037, 0x03F, 0x1F0, 0x1F1, 0x1F3}


# --- ELF, as far as code objects need it (System V ABI, 64 bits, little-endian)


def sections(data):
    """[(name, type, link, info, content)] of an ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    offset = struct.unpack_from("<Q", data, 40)[0]
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    strings = headers[names][4]
    return [
        (text_at(data, strings + name), kind, link, info, b"" if kind == 8 else data[at : at + length], length)
        for name, kind, _, _, at, length, link, info, _, _ in headers
    ]


def text_at(data, offset):
    return data[offset : data.index(b"\0", offset)].decode()


def unpack(data, at=0):
    """A msgpack value of the kinds that AMD's metadata uses, and where it ends."""
    kind = data[at]
    if kind < 0x80:
        return kind, at + 1
    if kind >= 0xE0:
        return kind - 256, at + 1
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], at + 1
    if 0xCC <= kind <= 0xD3:
        form = "BHIQbhiq"[kind - 0xCC]
        return struct.unpack_from(">" + form, data, at + 1)[0], at + 1 + struct.calcsize(form)
    if kind < 0x90 or kind in (0xDE, 0xDF):  # a map
        length, at = (kind & 15, at + 1) if kind < 0x90 else length_at(data, at, kind - 0xDD)
        result = {}
        for _ in range(length):
            key, at = unpack(data, at)
            result[key], at = unpack(data, at)
        return result, at
    if kind < 0xA0 or kind in (0xDC, 0xDD):  # an array
        length, at = (kind & 15, at + 1) if kind < 0xA0 else length_at(data, at, kind - 0xDB)
        result = []
        for _ in range(length):
            value, at = unpack(data, at)
            result.append(value)
        return result, at
    if kind < 0xC0 or kind in (0xD9, 0xDA, 0xDB):  # a string
        length, at = (kind & 31, at + 1) if kind < 0xC0 else length_at(data, at, kind - 0xD9)
        return data[at : at + length].decode(), at + length
    raise ValueError(f"msgpack type {kind:#x}")


def length_at(data, at, log2):
    form = "BHI"[log2]
    return struct.unpack_from(">" + form, data, at + 1)[0], at + 1 + struct.calcsize(form)


def amd_kernels(data):
    """{kernel: numbers} of an AMD code object (LLVM's AMDGPU usage, "Code Object V5 Metadata")."""
    kernels = {}
    for _, kind, _, _, note, _ in sections(data):
        at = 0
        while kind == 7 and at + 12 <= len(note):
            owner, length, tag = struct.unpack_from("<III", note, at)
            body = at + 12 + (owner + 3) // 4 * 4
            at = body + (length + 3) // 4 * 4
            if tag != 32:  # NT_AMDGPU_METADATA
                continue
            for kernel in unpack(note[body : body + length])[0]["amdhsa.kernels"]:
                kernels[kernel[".name"]] = {
                    "registers": kernel[".vgpr_count"],
                    "scalars": kernel[".sgpr_count"],
                    "spills": kernel.get(".vgpr_spill_count", 0) + kernel.get(".sgpr_spill_count", 0),
                    "scratch": kernel[".private_segment_fixed_size"],
                    "shared": kernel[".group_segment_fixed_size"],
                    "threads": kernel[".max_flat_workgroup_size"],
                }
    return kernels


# Attributes of .nv.info that cuobjdump --dump-resource-usage shows.
REGISTERS, FRAME, MAX_THREADS = 0x2F, 0x11, 0x05


def nvidia_kernels(data):
    """{kernel: numbers} of a cubin. Spilled registers are part of the stack frame, so `spills` is 0."""
    all_sections = sections(data)
    names_of_code = [name[6:] for name, *_ in all_sections if name.startswith(".text.")]
    kernels = {name: {"scalars": 0, "spills": 0, "scratch": 0, "shared": 0} for name in names_of_code}
    for name, _, _, _, code, _ in all_sections:
        if name.startswith(".text."):
            words = [struct.unpack_from("<H", code, at)[0] & 0x1FF for at in range(0, len(code), 16)]
            kernels[name[6:]]["matrix"] = sum(1 for word in words if word in NVIDIA_MATRIX)
    names = {}
    for _, kind, link, _, content, _ in all_sections:
        if kind == 2:  # the symbol table
            strings = all_sections[link][4]
            for i in range(len(content) // 24):
                names[i] = text_at(strings, struct.unpack_from("<I", content, i * 24)[0])
    for name, _, _, _, content, length in all_sections:
        if name.startswith(".nv.shared.") and name[11:] in kernels:
            kernels[name[11:]]["shared"] = length
        if not name.startswith(".nv.info"):
            continue
        at = 0
        while at + 4 <= len(content):
            form, attribute, size = struct.unpack_from("<BBH", content, at)
            body, at = at + 4, at + 4 + (size if form == 4 else 0)
            if form == 4 and attribute in (REGISTERS, FRAME) and name == ".nv.info":
                symbol, value = struct.unpack_from("<II", content, body)
                if names[symbol] in kernels:
                    kernels[names[symbol]]["registers" if attribute == REGISTERS else "scratch"] = value
            if form == 4 and attribute == MAX_THREADS and name[9:] in kernels:
                kernels[name[9:]]["threads"] = struct.unpack_from("<I", content, body)[0]
    return kernels


def mnemonics(text):
    """{kernel: [mnemonics]} of the output of llvm-objdump -d."""
    found, kernel = {}, None
    for line in text.splitlines():
        if match := re.match(r"^[0-9a-f]+ <(\w+)>:$", line):
            kernel = found.setdefault(match.group(1), [])
        elif kernel is not None and (match := re.match(r"^\s+(\w+)", line)):
            kernel.append(match.group(1))
    return found


def count_matrix(path, target, kernels):
    """Adds the number of matrix-core instructions in the disassembly to the numbers of AMD's kernels."""
    program = shutil.which("llvm-objdump-22")
    if not program:
        raise OSError("llvm-objdump-22 is not here: install the package llvm-22")
    code = mnemonics(subprocess.run([program, "-d", str(path)], capture_output=True, text=True, check=True).stdout)
    pattern = re.compile(next(value for prefix, value in MATRIX.items() if target.startswith(prefix)))
    for kernel, numbers in kernels.items():
        if not code.get(kernel):
            raise ValueError(f"{path}: the disassembly has no instructions of {kernel}")
        numbers["matrix"] = sum(1 for word in code[kernel] if pattern.match(word))


# --- The table


def compiler_of(target):
    """The compiler that made a target's code, in the table's spelling."""
    if target.startswith("sm_"):
        output = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
        return "nvcc " + re.search(r"\bV(\d+\.\d+)", output).group(1)
    program = "clang++-22" if target == "gfx950" else "clang++-19"
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return "clang " + re.search(r"version (\d+\.\d+\.\d+)", output).group(1)


def read_folder(folder):
    """({(source, kernel, target): numbers}, {target: compiler}) of a build."""
    rows, compilers = {}, {}
    for target in TARGETS:
        files = sorted(folder.glob(f"*.{target}"))
        if not files:
            continue
        compilers[target] = compiler_of(target)
        for path in files:
            data = path.read_bytes()
            if target.startswith("sm_"):
                kernels = nvidia_kernels(data)
            else:
                kernels = amd_kernels(data)
                count_matrix(path, target, kernels)
            for kernel, numbers in kernels.items():
                rows[path.stem + ".gpu.cpp", kernel, target] = numbers
    return rows, compilers


def read_table(text):
    rows, compilers = {}, {}
    for line in text.splitlines():
        if line.startswith("# compiler "):
            target, compiler = line[11:].split(": ")
            compilers[target] = compiler
        elif line and line[0] != "#" and not line.startswith("source\t"):
            source, kernel, target, *numbers = line.split("\t")
            rows[source, kernel, target] = dict(zip(FIELDS, map(int, numbers), strict=True))
    return rows, compilers


def write_table(rows, compilers):
    lines = ["# What the compilers made of every kernel. tools/device_code.py writes it and says what the columns are."]
    lines += [f"# compiler {target}: {compilers[target]}" for target in TARGETS if target in compilers]
    lines.append("\t".join(("source", "kernel", "target", *FIELDS)))
    for key in sorted(rows, key=lambda row: (row[0], row[1], TARGETS.index(row[2]))):
        lines.append("\t".join((*key, *(str(rows[key][field]) for field in FIELDS))))
    return "\n".join(lines) + "\n"


# Per compute unit: registers and their allocation granularity (per lane and SIMD on AMD, per SM on NVIDIA), waves,
# SIMDs, bytes of shared memory, and the bytes that each block takes in addition, which cubins from sm_90 on include
# (CUDA programming guide, "Compute Capabilities"; LLVM's AMDGPU usage and AMD's ISA documents; gfx1100's unit is a
# work-group processor).
UNITS = {
    "sm_80": (65536, 256, 64, 1, 164 << 10, 1024),
    "sm_90": (65536, 256, 64, 1, 228 << 10, 0),
    "sm_100": (65536, 256, 64, 1, 228 << 10, 0),
    "gfx90a": (512, 8, 8, 4, 64 << 10, 0),
    "gfx942": (512, 8, 8, 4, 64 << 10, 0),
    "gfx950": (512, 8, 8, 4, 160 << 10, 0),
    "gfx1100": (1536, 24, 16, 4, 128 << 10, 0),
}


def launched_shared(text):
    """{(kernel, target): the most bytes of dynamic shared memory} of the launches in tools/gpu_budgets.tsv."""
    most, target = {}, None
    for line in text.splitlines():
        fields = line.split("\t")
        if fields[0] == "job":
            target = fields[3]
        elif line[:1] != "#" and fields[0] != "op":
            key = fields[1], target
            most[key] = max(most.get(key, 0), int(fields[4]))
    return most


def blocks_a_unit(target, numbers, dynamic=0):
    """The number of blocks of a kernel that fit on a compute unit, by registers, waves and shared memory, of which `dynamic` bytes
    come from the launch."""
    registers, granule, waves, simds, shared, besides = UNITS[target]
    width = 64 if target.startswith("gfx9") else 32
    waves_a_block = -(-numbers["threads"] // width)
    need = numbers["registers"] * (32 if target.startswith("sm_") else 1)
    fit = min(waves, registers // (-(-max(need, 1) // granule) * granule)) * simds // waves_a_block
    used = numbers["shared"] + dynamic
    return min(fit, shared // (used + besides)) if used else fit


def compare(rows, compilers, table, table_compilers, dynamic):
    """(problems, remarks) of comparing a build's rows with the table's, for the targets of the build. `dynamic`: launched_shared."""
    problems, remarks = [], []
    for target, compiler in compilers.items():
        if table_compilers.get(target) != compiler:
            theirs = table_compilers.get(target, "none")
            remarks.append(f"{target}: {compiler}, the table is of {theirs}: compared loosely")
    for key in sorted(rows.keys() | {key for key in table if key[2] in compilers}):
        source, kernel, target = key
        where = f"{source} {kernel} {target}"
        if key not in table or key not in rows:
            problems.append(f"{where}: {'not in the table' if key in rows else 'in the table, and not in the code'}")
            continue
        now, then = rows[key], table[key]
        strict = compilers[target] == table_compilers.get(target)
        for field in ("spills", "scratch", "shared"):
            if now[field] > then[field]:
                fails = strict or field == "shared" or (field == "scratch" and then[field] == 0)
                (problems if fails else remarks).append(f"{where}: {field} {then[field]} -> {now[field]}")
        launched = dynamic.get((kernel, target), 0)
        blocks_then, blocks_now = blocks_a_unit(target, then, launched), blocks_a_unit(target, now, launched)
        if blocks_now < blocks_then:
            (problems if strict else remarks).append(
                f"{where}: {blocks_then} -> {blocks_now} blocks fit on a compute unit "
                f"(registers {then['registers']} -> {now['registers']}, shared {then['shared']} -> {now['shared']})"
            )
        if then["matrix"] and not now["matrix"]:
            problems.append(f"{where}: its matrix-core instructions are gone")
    for source, kernel in sorted({key[:2] for key in rows}):
        with_some = {target for target in TARGETS if rows.get((source, kernel, target), {}).get("matrix")}
        without = {target for target in TARGETS if (source, kernel, target) in rows} - with_some
        without &= ONLY_ON.get(kernel, without)
        if with_some and without:
            problems.append(
                f"{source} {kernel}: matrix-core instructions on {' '.join(sorted(with_some))}, "
                f"none on {' '.join(sorted(without))}"
            )
    return problems, remarks


def self_test():
    good = {"registers": 64, "scalars": 40, "spills": 0, "scratch": 0, "shared": 1024, "threads": 256, "matrix": 8}
    table = {("a.gpu.cpp", "k", "gfx942"): good, ("a.gpu.cpp", "k", "sm_90"): good}
    compilers = {"gfx942": "clang 19.1.7", "sm_90": "nvcc 13.0"}
    other = {"gfx942": "clang 20.0.0", "sm_90": "nvcc 13.0"}

    def found(changes, made_by=compilers, launched=0):
        key = ("a.gpu.cpp", "k", "gfx942")
        rows = {**table, key: {**good, **changes}}
        return tuple(map(len, compare(rows, made_by, table, compilers, {key[1:]: launched})))

    assert found({}) == (0, 0)
    assert found({"registers": 32, "scalars": 99, "spills": 0, "matrix": 9}) == (0, 0)
    assert found({"spills": 1}) == (1, 0)
    assert found({"scratch": 4}) == (1, 0)
    assert found({"shared": 2048}) == (1, 0)
    assert found({"shared": 17 << 10}) == (2, 0)  # and 3 blocks fit instead of 8
    assert found({"registers": 72}) == (1, 0)
    assert found({"registers": 72}, launched=15 << 10) == (0, 0)  # 4 blocks by shared memory, before and now
    assert found({"registers": 136}, launched=15 << 10) == (1, 0)
    assert found({"matrix": 0}) == (2, 0)  # lost, and different from the other target
    assert found({"spills": 1, "registers": 72}, other) == (0, 3)
    assert found({"scratch": 4}, other) == (1, 1)
    assert found({"shared": 2048}, other) == (1, 1)
    assert len(compare({}, compilers, table, compilers, {})[0]) == 2
    more = {**table, ("a.gpu.cpp", "new", "sm_90"): {**good, "matrix": 0}}
    assert len(compare(more, compilers, table, compilers, {})[0]) == 1
    half = {key: numbers for key, numbers in table.items() if key[2] == "sm_90"}
    assert compare(half, {"sm_90": "nvcc 13.0"}, table, compilers, {}) == ([], [])
    assert read_table(write_table(table, compilers)) == (table, compilers)

    assert unpack(bytes.fromhex("83a161cd0100a16292c3d0ffa163d9026869"))[0] == {"a": 256, "b": [True, -1], "c": "hi"}
    assert blocks_a_unit("gfx942", good) == 8 and blocks_a_unit("gfx942", {**good, "registers": 129}) == 3
    assert blocks_a_unit("sm_90", good) == 4 and blocks_a_unit("sm_90", {**good, "shared": 100 << 10}) == 2
    assert blocks_a_unit("gfx1100", {**good, "registers": 97}) == 6
    assert blocks_a_unit("sm_90", {**good, "shared": 0}, 100 << 10) == 2
    budgets = "# text\nop\tkernel\njob\tj\tH200\tsm_90\t8\t9\no\tk\t1\t256\t64\t1\t0\t0\no\tk\t2\t256\t32\t1\t0\t0\n"
    assert launched_shared(budgets) == {("k", "sm_90"): 64}
    amd = "00001900 <k>:\n\ts_load_dwordx4 s[0:3]\n\tv_mfma_f32 a[0:3], v[0:1]\n\n00001a00 <m>:\n\ts_endpgm\n"
    assert mnemonics(amd) == {"k": ["s_load_dwordx4", "v_mfma_f32"], "m": ["s_endpgm"]}
    with tempfile.TemporaryDirectory() as folder:
        for action in ("--check", "--update"):
            command = [sys.executable, __file__, action, folder]
            assert subprocess.run(command, capture_output=True, check=False).returncode == 1, "no code at all passes"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("--check", "--update", "--self-test"):
        action.add_argument(name, action="store_true")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/device/src/backend/gpu/device")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    rows, compilers = read_folder(options.folder)
    problems = []
    if not rows:
        problems.append(f"no device code in {options.folder}: ./run device-code makes it")
    table, table_compilers = read_table(TABLE.read_text(encoding="utf-8") if TABLE.exists() else "")
    if options.update:
        if not problems:
            kept = {key: value for key, value in table.items() if key[2] not in compilers}
            TABLE.write_text(write_table({**kept, **rows}, {**table_compilers, **compilers}), encoding="utf-8")
    else:
        dynamic = launched_shared(BUDGETS.read_text(encoding="utf-8"))
        found, remarks = compare(rows, compilers, table, table_compilers, dynamic)
        print("\n".join(remarks), end="\n" if remarks else "")
        problems += found
    for target in TARGETS:
        if target not in compilers:
            print(f"{target}: not built, not checked")
    count = f"{len({key[1] for key in rows})} kernels, {len(rows)} compilations for {' '.join(compilers)}"
    print("\n".join(problems + [f"device code: {count}, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

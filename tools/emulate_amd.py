#!/usr/bin/env python3
"""Runs the AMD machine code of every GPU kernel in tinygrad's instruction-set emulator, and compares the resulting memory
with that of the simulated device with as many lanes a wave. To be run by hand when kernels, fragment layouts or compilers
change:

  ./run device-code                                           makes the code objects, and build/launches32 for gfx1100
  cmake --build build/release --target record_launches && build/release/tests/record_launches build/launches64 64
  tools/emulate_amd.py --tinygrad CHECKOUT --update           runs them all, writes tools/emulated_kernels.tsv
  INGOT_WRITE_DOCS=1 build/release/tests/test_backend_gpu --gtest_filter='SupportMatrix.*'

CHECKOUT is a working tree of tinygrad's repository (tinygrad/tinygrad on GitHub; commit a9069c177a9d of August 2026 made
the table); its emulator, test/mockgpu/amd, is not in the PyPI package. Needs numpy, and clang-19 for the code that the
emulator compiles. --kernels REGEX and --targets select. Kernels that the emulator does not support are in the table with the
reason. Exit status 1 when a result differs by more than the op's tolerance. Where the emulator differs from a device, PATCHES
changes its source in memory, and gfx942 gets its own fp8. The emulator's stores of 4 bytes and more need aligned addresses: a
kernel with unaligned stores, which a device supports, differs.

For each kernel one launch of the op table is run (tests/backend/gpu/record) with its memory mapped at the original address. The
emulator initialises shared memory to zero and runs the waves of a block one after another, barrier to barrier: concurrency is
not tested."""
import argparse
import concurrent.futures
import ctypes
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

import device_code
import emulated_kernels

ROOT = Path(__file__).resolve().parent.parent
# By target: the emulator's name of the architecture, and the lanes of a wave.
TARGETS = {"gfx90a": ("cdna", 64), "gfx942": ("cdna", 64), "gfx950": ("cdna", 64), "gfx1100": ("rdna3", 32)}


def map_at(address, size):
    """Zeroed, non-executable memory of this process at an address."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    private_anonymous_fixed = 0x02 | 0x20 | (0x100000 if address else 0)
    found = libc.mmap(address, (size + 4095) // 4096 * 4096, 3, private_anonymous_fixed, -1, 0)
    if found in (None, ctypes.c_void_p(-1).value) or (address and found != address):
        raise OSError(f"no memory at {address:#x}")
    return found


def load(data):
    """Loads the segments of a code object; returns the address of its byte 0."""
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
    segments = [header[2:7] for header in headers if header[0] == 1]
    base = map_at(0, max(virtual + in_memory for _, virtual, _, _, in_memory in segments) + 64)
    for at, virtual, _, in_file, _ in segments:
        ctypes.memmove(base + virtual, data[at : at + in_file], in_file)
    return base


# The first of two words of instructions that write back or invalidate caches; the second one is 0.
CACHE_INSTRUCTIONS = {
    "gfx90a": (0xE0FC0000,),  # buffer_wbinvl1_vol
    "gfx942": (0xE0A08000, 0xE0A48000),  # buffer_wbl2 sc1, buffer_inv sc1
    "gfx950": (0xE0A08000, 0xE0A48000),
    "gfx1100": (0xE0AC0000, 0xE0B00000),  # buffer_gl0_inv, buffer_gl1_inv
}


def without_cache_instructions(data, target):
    """A code object with s_nop in their place: the emulator has no caches, and takes those that it knows for loads."""
    for word in CACHE_INSTRUCTIONS[target]:
        data = data.replace(struct.pack("<II", word, 0), struct.pack("<II", 0xBF800000, 0xBF800000))
    return data


def symbols(data):
    sections = device_code.sections(data)
    for _, kind, link, _, content, _ in sections:
        for at in range(0, len(content) if kind == 11 else 0, 24):  # the dynamic symbols
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", content, at)
            yield device_code.text_at(sections[link][4], name), value


def metadata(data, kernel):
    for _, kind, _, _, note, _ in device_code.sections(data):
        if kind == 7 and struct.unpack_from("<I", note, 8)[0] == 32:
            body = 12 + (struct.unpack_from("<I", note)[0] + 3) // 4 * 4
            for found in device_code.unpack(note[body:])[0]["amdhsa.kernels"]:
                if found[".name"] == kernel:
                    return found
    raise ValueError(f"no metadata of {kernel}")


def kernel_arguments(args, kernel, grid, threads):
    """The kernel's argument segment: our arguments, and those that the compiler adds (code object version 5)."""
    segment = bytearray(kernel[".kernarg_segment_size"])
    segment[: len(args)] = args
    hidden = {"hidden_block_count_x": grid[0], "hidden_block_count_y": grid[1], "hidden_block_count_z": 1,
              "hidden_group_size_x": threads, "hidden_group_size_y": 1, "hidden_group_size_z": 1, "hidden_grid_dims": 2}
    for argument in kernel[".args"]:
        if value := hidden.get(argument[".value_kind"]):
            struct.pack_into("<I" if argument[".size"] == 4 else "<H", segment, argument[".offset"], value)
    return segment


def user_registers(properties, dispatch, arguments, private_bytes):
    """The initial values of a wave's scalar registers (LLVM's AMDGPU usage, "Initial Kernel Execution State")."""
    values = []
    for bit, words in enumerate(
        ([0, 0, 0, 0], split(dispatch), [0, 0], split(arguments), [0, 0], [0, 0], [private_bytes])
    ):
        if properties >> bit & 1:
            values += words
    return values


def launches_of(launches, lanes):
    """The folder of launches of the simulated device with this number of lanes a wave."""
    return launches.with_name(f"{launches.name}{lanes}")


def split(address):
    return [address & 0xFFFFFFFF, address >> 32]


def run_kernel(emulator, launch, launches, code):
    """Runs the kernel and compares: {"same": bool, "error": relative to the largest value, "within": bool}."""
    import numpy

    architecture, lanes = TARGETS[launch["target"]]
    data = (code / f"{launch['source'].removesuffix('.gpu.cpp')}.{launch['target']}").read_bytes()
    loaded = load(without_cache_instructions(data, launch["target"]))
    descriptor = dict(symbols(data))[launch["kernel"] + ".kd"]
    at = loaded + descriptor
    fields = ctypes.string_at(at, 64)
    shared, private = struct.unpack_from("<II", fields, 0)
    entry = at + struct.unpack_from("<q", fields, 16)[0]
    rsrc2, properties, preload = struct.unpack_from("<IHH", fields, 52)
    if preload:
        raise ValueError("the kernel wants arguments preloaded into registers")
    grid, threads = (launch["x"], launch["y"]), launch["threads"]
    arguments = kernel_arguments(launch["args"], metadata(data, launch["kernel"]), grid, threads)
    arguments_at = map_at(0, len(arguments) + 64)
    ctypes.memmove(arguments_at, bytes(arguments), len(arguments))
    packet = struct.pack("<HHHHHHIIIII", 0, 2, threads, 1, 1, 0, grid[0] * threads, grid[1], 1, private, shared)
    packet_at = map_at(0, 64)
    ctypes.memmove(packet_at, packet, len(packet))

    folder = launches_of(launches, lanes)
    before = (folder / f"{launch['kernel']}.before").read_bytes()
    after = (folder / f"{launch['kernel']}.after").read_bytes()
    map_at(launch["base"], len(before))
    ctypes.memmove(launch["base"], before, len(before))
    blocks_of_lds = (shared + launch["dynamic_shared_bytes"] + 511) // 512
    rsrc2 = rsrc2 & ~(0x1FF << 15) | blocks_of_lds << 15
    emulator.run_asm(
        entry, len(data), grid[0], grid[1], 1, threads, 1, 1, arguments_at, rsrc2, private, architecture,
        user_registers(properties, packet_at, arguments_at, private),
    )
    result = ctypes.string_at(launch["base"], len(before))
    if result == after:
        return {"same": True, "error": 0.0, "within": True}
    covered, worst, within = bytearray(len(before)), 0.0, True
    for address, size, kind, tolerance in launch["regions"]:
        begin = address - launch["base"]
        covered[begin : begin + size] = b"\1" * size
        wanted, found = after[begin : begin + size], result[begin : begin + size]
        if wanted == found:
            continue
        if kind not in ("f32", "bf16", "f16", "scratch"):
            return {"same": False, "error": float("inf"), "within": False}
        error = difference(numpy, wanted, found, kind)
        if kind == "scratch" and error > tolerance:  # fp32 sums of 16-bit operands, or values of their type
            halves = {other: of for _, _, other, of in launch["regions"] if other in ("bf16", "f16")}
            error = min([error, *(difference(numpy, wanted, found, other) for other in halves)])
            tolerance = max(halves.values(), default=tolerance)
        worst, within = max(worst, error), within and error <= tolerance
    if any(a != b for a, b, known in zip(result, after, covered) if not known):
        return {"same": False, "error": float("inf"), "within": False}  # an access outside the allocations
    return {"same": False, "error": worst, "within": within}


def difference(numpy, wanted, found, kind):
    """The largest difference, relative to the largest value; infinite where only one of two numbers is finite."""
    wanted, found = numbers(numpy, wanted, kind), numbers(numpy, found, kind)
    finite = numpy.isfinite(wanted)
    if (finite != numpy.isfinite(found)).any():
        return float("inf")
    return float(numpy.abs(wanted[finite] - found[finite]).max() / max(numpy.abs(wanted[finite]).max(), 1e-30))


def numbers(numpy, data, kind):
    if kind == "bf16":
        return (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).astype(float)
    kind_of_number = numpy.float16 if kind == "f16" else numpy.float32
    size = numpy.dtype(kind_of_number).itemsize
    return numpy.frombuffer(data[: len(data) // size * size], kind_of_number).astype(float)


# Differences between the emulator (of that commit) and a device. By file: its text, the number of occurrences, the
# replacement.
NOT_CDNA = "type(inst).__module__ != irc.__name__"
PATCHES = {
    "pcode.py": (
        # Loads of 2 bytes accept any address, as those of 4 bytes already do.
        (
            "      elif dt in (dtypes.uint16, dtypes.int16):\n        val = (val >> (((addr >> _const(adt, 1)) & "
            "_const(adt, 1)).cast(dtypes.uint32) * _u32(16))) & _u32(0xFFFF)\n", 1, "",
        ),
    ),
    "emu.py": (
        # Flat loads and stores have no scalar address; the zero field in its place does not mean register s0.
        (
            "ctx.optional_field(inst, 'saddr')", 1,
            "(None if type(inst) is irc.FLAT else ctx.optional_field(inst, 'saddr'))",
        ),
        # Inactive lanes do not access shared memory, whatever their registers contain.
        (
            "      addr = ctx.rvgpr_dyn(addr_reg, lane)\n", 1,
            "      addr = _lane_active(exec_mask, lane).where(ctx.rvgpr_dyn(addr_reg, lane), _c(0))\n",
        ),
        # Data for shared memory and factors of v_mfma may be in accumulation registers: `acc`, one bit per factor.
        ("ctx.rvgpr_dyn(vdata_reg", 8, "(ctx.raccvgpr_dyn if use_acc else ctx.rvgpr_dyn)(vdata_reg"),
        ("ctx.rvgpr_dyn(data1_reg", 3, "(ctx.raccvgpr_dyn if use_acc else ctx.rvgpr_dyn)(data1_reg"),
        (
            "ctx.rvgpr_dyn(off - ", 1,
            "(ctx.raccvgpr_dyn if _iattr(inst, 'acc') >> (base > 0) & 1 else ctx.rvgpr_dyn)(off - ",
        ),
        # 16-bit values occupy whole registers. (Upper halves at numbers from 128 on exist on RDNA only.)
        ("if bits['s0'] == 16:  # src0", 1, f"if bits['s0'] == 16 and {NOT_CDNA}:  # src0"),
        ("if bits['s0'] == 16:\n      vsrc1_hi", 1, f"if bits['s0'] == 16 and {NOT_CDNA}:\n      vsrc1_hi"),
        ("vsrc1_hi = bits['s0'] == 16 and (", 1, f"vsrc1_hi = bits['s0'] == 16 and {NOT_CDNA} and ("),
        ("write_hi_half = bits['d'] == 16 and (", 1, f"write_hi_half = bits['d'] == 16 and {NOT_CDNA} and ("),
        # ds_load_u16_d16_hi writes the upper half of a register and keeps the lower one.
        (
            "        bit_width, dword_idx = int(m.group(1)) - int(m.group(2)) + 1", 1,
            "        if int(m.group(2)) == 16:\n"
            "          halves = ctx.rvgpr_dyn(vdst_reg, lane) & _c(0xFFFF) | _to_u32(val) << _c(16)\n"
            "          return _write_val(32, halves, _wdata, vdst_reg, lane, exec_mask)\n"
            "        bit_width, dword_idx = int(m.group(1)) - int(m.group(2)) + 1",
        ),
        # The bit of an atomic operation that returns the previous value is called sc0 on CDNA.
        ("_iattr(inst, 'glc')", 1, "(_iattr(inst, 'glc') or _iattr(inst, 'sc0'))"),
        # Each wave of a block has scratch memory of its own.
        ("scratch_size * wave_size, dtypes.uint8", 1, "scratch_size * total_threads, dtypes.uint8"),
        ("(scratch_buf._buf.va_addr if", 1, "(scratch_buf._buf.va_addr + wave_start * scratch_size if"),
        # v_permlanex16 may have a literal as its second half of lane numbers.
        (
            "self.rsrc_dyn(src2_off, _c(0, dtypes.int)) if", 1,
            "self.rsrc_dyn(src2_off, _c(0, dtypes.int), 32, self.optional_field(inst, 'literal')) if",
        ),
        # v_mfma keeps subnormal f16 values (only gfx90a flushes them: ROCm's documentation of MIOpen, "MI200 MFMA
        # behavior specifics"), and infinities.
        (
            "return exp.eq(_c(0)).where(_c(0), f32_bits)", 1,
            "below = (mant.cast(dtypes.float32) * UOp.const(2.0**-24, dtypes.float32)).bitcast(dtypes.uint32)\n"
            "    above = _c(0x7F800000) | mant << _c(13)\n"
            "    return sign << _c(31) | exp.eq(_c(0)).where(below, exp.eq(_c(31)).where(above, f32_bits))",
        ),
    ),
}  # fmt: skip


def patched(path):
    """Loads a module of the emulator with its patches applied."""
    source = path.read_text(encoding="utf-8")
    for text, count, wanted in PATCHES[path.name]:
        if source.count(text) != count:
            raise ValueError(f"{path} is not that of the commit above: {text!r} is there {source.count(text)} times")
        source = source.replace(text, wanted)
    name = f"test.mockgpu.amd.{path.stem}"
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def emulator(checkout):
    os.environ.setdefault("CC", "clang-19")
    os.environ.setdefault("CACHEDB", str(Path(tempfile.gettempdir()) / "ingot-emulator-cache.db"))
    sys.path.insert(0, str(checkout))
    patched(checkout / "test/mockgpu/amd/pcode.py")  # the other module imports it
    emu = patched(checkout / "test/mockgpu/amd/emu.py")
    emu._get_ftz_lib = lambda: (None, 0)  # our kernels keep subnormals, as their descriptors state
    return emu


def fnuz(emu, exponent_bits, bias):
    """Converts gfx942's fp8 codes to fp32: the bias differs, there is no infinity, and 0x80 is the only NaN."""
    u32, f32 = emu.dtypes.uint32, emu.dtypes.float32
    digits = 7 - exponent_bits

    def decode(value):
        code = value.cast(u32) & emu._c(0xFF)
        sign, digit = (code >> emu._c(7)) << emu._c(31), code & emu._c((1 << digits) - 1)
        exponent = (code >> emu._c(digits)) & emu._c((1 << exponent_bits) - 1)
        normal = (exponent + emu._c(127 - bias)) << emu._c(23) | digit << emu._c(23 - digits)
        below = (digit.cast(f32) * emu.UOp.const(2.0 ** (1 - bias - digits), f32)).bitcast(u32)
        bits = sign | exponent.eq(emu._c(0)).where(below, normal)
        return code.eq(emu._c(0x80)).where(emu._c(0x7FC00000), bits).bitcast(f32)

    return decode


def gfx90a_decoder(decode):
    """Decodes gfx90a's products of bf16 on matrix cores, which have other numbers there than in the later devices of the
    emulator's tables (LLVM's VOP3PInstructions.td: v_mfma_f32_32x32x8bf16_1k and 16x16x16bf16_1k)."""
    renumbered = {0x66: 0x60, 0x67: 0x61}
    encoding = 0xD3800000  # of the 9 upper bits

    def decode_gfx90a(code, arch):
        word = struct.unpack_from("<I", code)[0]
        number = word >> 16 & 0x7F
        if word & 0xFF800000 == encoding and number in renumbered:
            word += renumbered[number] - number << 16
            code = struct.pack("<I", word) + bytes(code[4:])
        return decode(code, arch)

    return decode_gfx90a


def worker(options):
    """Reads launches as JSON lines and answers with lines. It is a separate process, since invalid addresses end it."""
    emu, (target,) = emulator(options.tinygrad), options.targets
    if target == "gfx942":
        emu._FUNCS.update(fp8_to_f32=fnuz(emu, 4, 8), bf8_to_f32=fnuz(emu, 5, 16))
    if target == "gfx90a":
        emu.decode_inst = gfx90a_decoder(emu.decode_inst)
    for line in sys.stdin:
        launch = json.loads(line)
        launch["args"] = bytes.fromhex(launch["args"])
        try:
            answer = run_kernel(emu, launch, options.launches, options.code)
        except Exception as error:  # any error of the emulator
            answer = {"cannot": " ".join(str(error).split())[-200:]}
        libc = ctypes.CDLL(None)
        libc.munmap(ctypes.c_void_p(launch["base"]), ctypes.c_size_t(1 << 30))
        print(json.dumps(answer), flush=True)


class Worker:
    """A worker process that is restarted after it died or exceeded its time."""

    def __init__(self, options, target):
        self.options, self.target, self.process = options, target, None

    def run(self, launch):
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, __file__, "--worker", "--tinygrad", str(self.options.tinygrad)]
            command += ["--launches", str(self.options.launches), "--code", str(self.options.code), "--targets", self.target]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        timer = threading.Timer(self.options.seconds, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(launch) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        in_time = timer.is_alive()
        timer.cancel()
        if line:
            return json.loads(line)
        self.process.wait()
        why = "the emulator ended without a result" if in_time else f"no result within {self.options.seconds:.0f} s"
        return {"cannot": why}


def verdict(answer):
    """(state, detail) for the table."""
    if "cannot" in answer:
        return "not emulated", answer["cannot"]
    if answer["same"]:
        return "agrees", "same bits"
    if answer["within"]:
        return "agrees", f"error {answer['error']:.2g}"
    return "DIFFERS", f"error {answer['error']:.2g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tinygrad", type=Path, required=True, help="a working tree of tinygrad's repository")
    parser.add_argument("--launches", type=Path, default=ROOT / "build/launches",
                        help="what record_launches wrote, without the number of lanes at the end of the folder's name")
    parser.add_argument("--code", type=Path, default=ROOT / "build/device/src/backend/gpu/device", help="code objects")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--kernels", default="", help="a regular expression")
    parser.add_argument("--seconds", type=float, default=120, help="for one kernel")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options)
    chosen = {}  # by the lanes of a wave
    for lanes in {TARGETS[target][1] for target in options.targets}:
        launches = emulated_kernels.read_launches(launches_of(options.launches, lanes))
        chosen[lanes] = [launch for launch in launches if re.search(options.kernels, launch["kernel"])]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(lambda target: run_target(options, target, chosen[TARGETS[target][1]]), options.targets))
    rows = {key: row for part in parts for key, row in part.items()}
    if options.update:
        emulated_kernels.update(rows)
    launched = [each for part in chosen.values() for each in part]
    missing = emulated_kernels.never_launched(launched, options.kernels, "gfx")
    print(f"no case of the op table launches: {' '.join(missing)}" if missing else "the op table launches every kernel")
    states = [row[2] for row in rows.values()]
    print(", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))))
    return 1 if "DIFFERS" in states or not rows else 0


def run_target(options, target, launches):
    """The table's rows of one target, computed by a worker of its own."""
    rows, process = {}, Worker(options, target)
    launches = [launch for launch in launches if emulated_kernels.is_for(launch["kernel"], target)]
    if target == "gfx1100":  # attention's tiles have other sizes there
        sizes = emulated_kernels.sizes_on(launches_of(options.launches, TARGETS[target][1]), target)
        launches = [launch | sizes.get(launch["kernel"], {}) for launch in launches]
    for launch in launches:
        started = time.monotonic()
        answer = process.run({**launch, "target": target})
        state, detail = verdict(answer)
        rows[launch["source"], launch["kernel"], target] = (launch["ops"], launch["case"], state, detail)
        print(f"{launch['kernel']} {target}: {state}, {detail} ({time.monotonic() - started:.1f} s)", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())

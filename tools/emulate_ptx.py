#!/usr/bin/env python3
"""Runs the PTX of every GPU kernel, from which ptxas makes the code of each NVIDIA target, in the emulator of
tests/backend/gpu/ptx, and compares the resulting memory with that of the simulated 32-lane device.

  emulate_ptx.py --check      fails where a result differs by more than the op's tolerance, where a kernel faults, and where the
                              table tools/emulated_kernels.tsv says otherwise
  emulate_ptx.py --update     writes the table
  emulate_ptx.py --op-table   fails likewise on all launches of the op table, and prints how many instructions they execute

Faults are accesses that are outside the allocations or not aligned, races in shared memory (also with asynchronous copies that
were not waited for), reads of global memory that race with a write of another block, and barriers that some threads do not
reach. What ptxas does with the PTX, other races in global memory and speed are not tested; products of matrix instructions are
summed in double.

`./run device-code` builds what the first two need and calls one of them: they run one launch for each kernel, which
tests/backend/gpu/record saved with its memory. They first make the mistakes of PLANTED in the PTX of kernels, one at a time, and
fail if one is not found. --kernels REGEX and --targets select.

--op-table takes minutes for each target and is run by hand, after ./run device-code and
cmake --build build/device --target emulate_op_table. --ops REGEX and --targets select."""
import argparse
import concurrent.futures
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import emulated_kernels

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("sm_80", "sm_90", "sm_100")

# Mistakes: kernel, a regular expression in its PTX, the text in place of the first match.
PLANTED = (
    ("rms_norm_bf16", r"bar\.sync \t0;", ""),  # no barrier of the block
    ("skinny_gemm_f32_bf16", r"bar\.warp\.sync \t-1;", ""),  # nor of the warp
    ("gemm_nt_128", r"wait_group \d;", "wait_group 3;"),  # copies that are not waited for
    ("flash_128", r"\.x4\.trans\.", ".x4."),  # a fragment that is not transposed
    ("flash_dkv_64", r"(mma\.sync.*\}, \{)(%r\d+), (%r\d+)(\}, \{)", r"\1\3, \2\4"),  # its halves exchanged
    ("layer_norm_f32", r"(shfl\.sync\.bfly.*), 16, 31", r"\1, 8, 31"),  # lanes that are added twice
    ("rope_f32", r"mul\.rn\.f32", "add.rn.f32"),
    ("glu_f32", r"(ld\.global\.f32 .*%rd\d+)\]", r"\1+4]"),  # the next element
    ("paged_64", r"ex2\.approx\.ftz\.f32", "mov.f32"),
    ("paged_unit_64", r"atom\.acq_rel", "atom.relaxed"),  # sums of other blocks that are not ordered before
    ("paged_unit_64", r"bar\.sync \t0;(?=[\s\S]{0,400}atom\.acq_rel)", ""),  # nor those of the block before its count
    ("paged_unit_64", r"(atom\.acq_rel[\s\S]*?)bar\.sync \t0;", r"\1"),  # nor the count before its readers
    ("flash_sm90_64", r"fence\.proxy\.async\.shared::cta;", ""),  # writes that products do not see
    ("flash_sm90_64", r"wgmma\.fence\.sync\.aligned;(?![\s\S]*wgmma\.fence)", ""),  # registers before the last product
    ("flash_sm90_64", r"bar\.sync \t0;(?![\s\S]*bar\.sync)", ""),  # values that other warps write
    ("flash_sm90_128", r"wgmma\.wait_group\.sync\.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),  # scores in flight
    ("flash_sm90_64", r"accumulates, 1, 1, 1;", "accumulates, 1, 1, 0;"),  # values that are not transposed
    ("flash_sm90_dkv_64", r"bar\.sync \t0;", ""),  # copies and statistics of other warps
    ("flash_sm90_dkv_128", r"aligned 1;(?![\s\S]*aligned 1;)", "aligned 2;"),  # dP in flight
    ("flash_sm90_dq_64", r"wgmma\.wait_group\.sync\.aligned 0;(?![\s\S]*aligned 0;)", ""),  # dq in flight
    ("flash_sm90_dq_128", r"wgmma\.fence\.sync\.aligned;(?![\s\S]*wgmma\.fence)", ""),  # the second half of dS
)


class Emulator:
    """Calls the program emulate_ptx, once for each PTX file."""

    def __init__(self, options):
        self.program, self.launches, self.seconds = options.emulator, options.launches, options.seconds

    def run(self, ptx, kernels):
        """{kernel: (state, detail)}."""
        command = [str(self.program), str(self.launches), str(ptx), *kernels]
        answers = {}
        try:
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=self.seconds, check=False).stdout
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode()
        for line in output.splitlines():
            kernel, state, detail = line.split("\t")
            answers[kernel] = (state, detail)
        for kernel in kernels:
            answers.setdefault(kernel, ("DIFFERS", "the emulator ended without a result"))
        return answers


def ptx_suffix(target):
    return target.replace("sm_", "compute_")


def ptx_of(options, source, target):
    return options.code / f"{source.removesuffix('.gpu.cpp')}.{ptx_suffix(target)}"


def run_all(options, launches):
    """The table's rows of all targets."""
    sources = sorted({launch["source"] for launch in launches})
    jobs = [(source, target) for source in sources for target in options.targets]

    def run(job):
        source, target = job
        of_source = {launch["kernel"]: launch for launch in launches if launch["source"] == source}
        kernels = [kernel for kernel in of_source if emulated_kernels.is_for(kernel, target)]
        answers = Emulator(options).run(ptx_of(options, source, target), kernels) if kernels else {}
        return {
            (source, kernel, target): (of_source[kernel]["ops"], of_source[kernel]["case"], *answer)
            for kernel, answer in answers.items()
        }

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return {key: row for rows in pool.map(run, jobs) for key, row in rows.items()}


def planted_problems(options, launches):
    """The mistakes of PLANTED that the emulator does not find."""
    problems, sources = [], {launch["kernel"]: launch["source"] for launch in launches}
    with tempfile.TemporaryDirectory() as folder:
        for kernel, pattern, replacement in PLANTED:
            if kernel not in sources:
                problems.append(f"planted mistake: there is no kernel {kernel}")
                continue
            targets = [target for target in options.targets if emulated_kernels.is_for(kernel, target)]
            if not targets:
                continue
            text = ptx_of(options, sources[kernel], targets[-1]).read_text(encoding="utf-8")
            begin = text.index(f".entry {kernel}(")
            end = text.find(".visible", begin) if ".visible" in text[begin:] else len(text)
            changed, count = re.subn(pattern, replacement, text[begin:end], count=1)
            if not count:
                problems.append(f"planted mistake: {kernel} has no {pattern}")
                continue
            path = Path(folder) / "mistake.ptx"
            path.write_text(text[:begin] + changed + text[end:], encoding="utf-8")
            state, detail = Emulator(options).run(path, [kernel])[kernel]
            print(f"planted mistake, {kernel}, {pattern}: {state}, {detail}")
            if state != "DIFFERS":
                problems.append(f"planted mistake: {kernel} {state.lower()} without {pattern}")
    return problems


def problems_of(rows, table):
    """What differs from the simulation, and from the committed table."""
    problems = []
    for key, (_, _, state, detail) in sorted(rows.items()):
        where = " ".join(key)
        if state == "DIFFERS":
            problems.append(f"{where}: differs from the simulation: {detail}")
        elif key not in table:
            problems.append(f"{where}: {state}, and not in the table ({detail})")
        elif table[key][2] != state:
            problems.append(f"{where}: the table says '{table[key][2]}', now '{state}' ({detail})")
    return problems


def run_op_table(options, target):
    """(problems, summary) of all launches of the op table on a target."""
    program = options.emulator.with_name("emulate_op_table")
    command = [str(program), str(options.code), ptx_suffix(target), options.ops]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    rows = [row for row in rows if emulated_kernels.is_for(row[1], target)]
    problems = [f"{kernel} {target}: {state}, {detail}" for _, kernel, _, state, detail, _ in rows if state != "agrees"]
    if result.returncode or not rows:
        problems.append(f"{target}: {program} ended with status {result.returncode} and {len(rows)} kernels")
    launches = sum(int(row[2]) for row in rows)
    same = sum(1 for row in rows if row[3:5] == ["agrees", "same bits"])
    share = 100 * sum(float(row[5]) for row in rows) / max(len(rows), 1)
    return problems, (
        f"PTX of {target}: {launches} launches of {len(rows)} kernels, {same} of which have the same bits in all; "
        f"on average {share:.0f} % of a kernel's instructions were executed"
    )


def test_op_table(options):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda target: run_op_table(options, target), options.targets))
    problems = [problem for found, _ in results for problem in found]
    print("\n".join(problems + [summary for _, summary in results] + [f"{len(problems)} problems"]))
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    for name in ("--check", "--update", "--op-table"):
        action.add_argument(name, action="store_true")
    parser.add_argument("--launches", type=Path, default=ROOT / "build/launches32", help="what record_launches wrote")
    parser.add_argument("--code", type=Path, default=ROOT / "build/device/src/backend/gpu/device", help="PTX files")
    parser.add_argument("--emulator", type=Path, default=ROOT / "build/device/tests/emulate_ptx")
    parser.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS)
    parser.add_argument("--kernels", default="", help="a regular expression")
    parser.add_argument("--ops", default="", help="a regular expression, for --op-table")
    parser.add_argument("--seconds", type=float, default=300, help="for the kernels of one source and target")
    options = parser.parse_args()
    options.targets = [target for target in options.targets if list(options.code.glob(f"*.{ptx_suffix(target)}"))]
    if not options.targets:
        print(f"PTX: none in {options.code}, not checked: it takes nvcc")
        return 0 if options.check else 1
    if options.op_table:
        return test_op_table(options)
    launches = list(emulated_kernels.read_launches(options.launches))
    problems = planted_problems(options, launches)
    launches = [launch for launch in launches if re.search(options.kernels, launch["kernel"])]
    missing = emulated_kernels.never_launched(launches, options.kernels, "sm_")
    problems += [f"{kernel}: no case of the op table launches it" for kernel in missing]
    rows = run_all(options, launches)
    if options.update:
        emulated_kernels.update(rows)
    problems += problems_of(rows, emulated_kernels.read())
    states = [(state, detail) for _, _, state, detail in rows.values()]
    agree = sum(1 for state, _ in states if state == "agrees")
    same = states.count(("agrees", "same bits"))
    print("\n".join(problems))
    print(f"PTX: {len(rows)} kernels ran, {agree} agree, {same} bit for bit, {len(problems)} problems")
    return 1 if problems or not rows else 0


if __name__ == "__main__":
    sys.exit(main())

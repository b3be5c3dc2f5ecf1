#!/usr/bin/env python3
"""Kills and stops ranks of a run at random moments, and verifies that all of them end and that the run goes on.

  faults.py [--faults N] [--seed N] [--only LAYOUT] [--mpirun PROGRAM] [--report FILE.md]

Trains recipes/models/tiny with `determinism: bitwise` as processes that mpirun starts (Open MPI's; its connections are TCP, so that
they can be cut), in each layout below, N times. At a random moment of each run a random rank is killed (SIGKILL), stopped (SIGSTOP), or
cut off (its connections to other ranks are closed by `ss -K`; left out where the kernel does not support it). Then
  - all processes end within the time-out, the seconds of the roll call and those in which ranks leave, with an exit code that is not 0
  - the message names the rank: a stopped one "does not answer"; a killed one by the launcher
  - the run goes on in another layout, from its last checkpoint, and each step has the loss and gradient norm of an unbroken run of one
    rank, and the model its bytes
Exit code 1: something did not. Build first: ./run build, ./run mpi.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from repository import INGOT, ROOT, commit, write_report

TIMEOUT_S = 4
# Seconds after which a run has not ended in time: the time-out, the roll call's patience, and twice the grace for leaving (comm/).
LIMIT_S = TIMEOUT_S + 3 + 2 * 5 + 3

STEPS = 150
LAYOUTS = {
    "dp 4": ["parallel.dp=4"],
    "dp 4, zero 3": ["parallel.dp=4", "parallel.zero=3"],
    "gpipe": ["parallel.pp=4", "parallel.schedule=gpipe"],
    "1f1b": ["parallel.pp=4", "parallel.schedule=1f1b"],
    "interleaved": ["parallel.pp=2", "parallel.dp=2", "parallel.schedule=interleaved"],
    "zb_h1": ["parallel.pp=4", "parallel.schedule=zb_h1"],
    "zb_v": ["parallel.pp=2", "parallel.dp=2", "parallel.zero=1", "parallel.schedule=zb_v"],
}
RANKS = 4
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "tcp,self"}


def command(folder, words):
    return [str(INGOT), "pretrain", str(folder / "recipe.yaml"), f"steps={STEPS}", *words]


def result(run):
    """Loss and gradient norm of each step, the last time that it was done, and the model's hash."""
    steps = {}
    for line in (run / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["type"] == "step":
            steps[event["step"]] = (event["loss"], event["grad_norm"])
    return steps, hashlib.sha256((run / "model/model.safetensors").read_bytes()).hexdigest()


def ranks_of(run):
    """The process of each rank."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", (process / "environ").read_bytes())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if rank and str(run.parent.parent / "recipe.yaml").encode() in words and pathlib.Path(words[0].decode()).name == INGOT.name:
            found[int(rank[1])] = int(process.name)
    return found


def ports_of(process):
    """The local ports of a process's connections."""
    text = subprocess.run(["ss", "-Htnp"], capture_output=True, text=True).stdout
    return [re.search(r":(\d+)\s", line)[1] for line in text.splitlines() if f"pid={process}," in line]


def cut(process):
    """Whether a connection was cut."""
    return any([subprocess.run(["ss", "-HKtn", f"sport = :{port}"], capture_output=True, text=True).stdout
                for port in ports_of(process)])


def wait_for_start(run, process):
    """Until the run's first step is in its log."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if (run / "events.jsonl").exists() and '"step"' in (run / "events.jsonl").read_text():
            return
        time.sleep(0.02)


def one_fault(folder, words, kind, rank, delay):
    """Runs until the fault ends it, `delay` seconds after its first step. Returns what is wrong and the seconds from the fault to the
    end; or None and the seconds from the first step, if the run ended before the fault."""
    run = folder / "runs/run"
    shutil.rmtree(run, ignore_errors=True)
    log = folder / "log.txt"
    words = [word for word in words if not word.startswith("parallel.dp=")]
    with log.open("w") as output:
        process = subprocess.Popen([*MPIRUN, "-n", str(RANKS), *command(folder, words), f"threads={RANKS}"], cwd=ROOT, env=ENVIRONMENT,
                                   stdout=output, stderr=output)
        wait_for_start(run, process)
        started = time.monotonic()
        while process.poll() is None and time.monotonic() < started + delay:
            time.sleep(0.01)
        ranks = ranks_of(run)
        if process.poll() is not None or rank not in ranks:
            if process.wait(120) != 0:
                sys.exit(f"{' '.join(words)}: {log.read_text()[-2000:]}")
            return None, time.monotonic() - started  # it ended before the fault
        begin = time.monotonic()
        if kind == "cut":
            if not cut(ranks[rank]):
                process.kill()
                sys.exit("connections cannot be cut")
        else:
            os.kill(ranks[rank], signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            for each in ranks.values():
                os.kill(each, signal.SIGKILL)
            return f"not ended after {LIMIT_S} s", LIMIT_S
    seconds = time.monotonic() - begin
    text = log.read_text()
    wrong = []
    if code == 0:
        wrong.append("exit code 0")
    for _ in range(100):  # mpirun may return before the last process has ended
        if not ranks_of(run):
            break
        time.sleep(0.05)
    else:
        wrong.append(f"ranks {sorted(ranks_of(run))} still run")
        for each in ranks_of(run).values():
            os.kill(each, signal.SIGKILL)
    named = {"kill": rf"process rank {rank} with PID", "stop": rf"rank {rank} on \S+ does not answer", "cut": r"rank \d|Process name: \[\[\d+,1\],\d\]"}[kind]  # Open MPI ends a process that has lost a connection
    if not re.search(named, text):
        wrong.append(f"the message does not name rank {rank}: {text[-1500:]}")
    return "; ".join(wrong), seconds


def go_on(folder, words):
    """Continues the run in one process; returns its end."""
    for resume in ("--resume", "--resume=fresh"):  # it may have ended before its first checkpoint
        done = subprocess.run([*command(folder, words), f"threads={RANKS}", resume], cwd=ROOT, capture_output=True, text=True)
        if "there is no checkpoint to continue from" not in done.stderr:
            break
    return "" if done.returncode == 0 else f"does not go on: {done.stderr[-1500:]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=10, help="of each layout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(LAYOUTS))
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    global MPIRUN
    MPIRUN = [options.mpirun, "--oversubscribe", "--bind-to", "none"]
    draw = random.Random(options.seed)
    failures = []
    lines = ["| layout | killed | stopped | cut off | done before | longest end, s | wrong |", "|---|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "recipe.yaml").write_text(
            f"name: run\nmodel: {ROOT}/recipes/models/tiny\ninit: random\nrun_dir: {folder}/runs\ndevice: cpu\n"
            f"data: {{train: {ROOT}/data/sotu/heldout.jsonl, format: text, sequence_length: 64}}\ndeterminism: bitwise\n"
            f"batch: {{global: 8, micro: 1}}\ncheckpoint: {{every: 10}}\nparallel: {{timeout_s: {TIMEOUT_S}}}\n")
        subprocess.run([*command(folder, ["name=one"]), "threads=2"], cwd=ROOT, check=True, capture_output=True)
        expected = result(folder / "runs/one")
        kinds = ["kill", "stop"] + (["cut"] if can_cut() else [])
        for name, words in LAYOUTS.items():
            if options.only and name != options.only:
                continue
            counts = dict.fromkeys(["kill", "stop", "cut", "done"], 0)
            longest, wrong = 0, []
            _, whole = one_fault(folder, words, "kill", 0, 3600)  # without a fault
            for number in range(options.faults):
                kind, rank = kinds[number % len(kinds)], draw.randrange(RANKS)
                found, seconds = one_fault(folder, words, kind, rank, draw.uniform(0, whole))
                counts["done" if found is None else kind] += 1
                if found is not None:
                    longest = max(longest, seconds)
                others = [each for each in LAYOUTS if each != name]
                other = draw.choice(others)
                end = go_on(folder, LAYOUTS[other]) if found is not None else ""
                if found:
                    wrong.append(f"{kind} of rank {rank}: {found}")
                if end:
                    wrong.append(f"{kind} of rank {rank}, then {other}: {end}")
                elif result(folder / "runs/run") != expected:
                    wrong.append(f"{kind} of rank {rank}, then {other}: another curve or model")
                print(f"{name} {number}: {kind} {rank}, {seconds:.1f} s, then {other}{': ' + wrong[-1] if wrong else ''}", file=sys.stderr)
            failures += [f"{name}: {each}" for each in wrong]
            lines.append(f"| {name} | {counts['kill']} | {counts['stop']} | {counts['cut']} | {counts['done']} | {longest:.1f} | {len(wrong)} |")
            print(lines[-1], file=sys.stderr)
    head = [f"# Faults ({time.strftime('%Y-%m-%d')})", "",
            f"`bench/faults.py --faults {options.faults} --seed {options.seed}`, commit {commit()}: the tiny model on {RANKS} processes of "
            f"Open MPI, {STEPS} steps, checkpoints every 10, time-out {TIMEOUT_S} s. A rank is killed or stopped at a random moment; the others "
            f"must end within {LIMIT_S} s and name it, and the run must go on in another layout with the bits of an unbroken one.", ""]
    write_report("\n".join(head + lines + ["", *[f"- {each}" for each in failures]]), options.report)
    if failures:
        sys.exit(1)


def can_cut():
    """Whether the kernel closes connections on request: tried with one of our own."""
    import socket
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        port = client.getsockname()[1]
        done = subprocess.run(["ss", "-HKtn", f"sport = :{port}"], capture_output=True, text=True)
        client.close()
        return bool(done.stdout.strip())


MPIRUN = []

if __name__ == "__main__":
    main()

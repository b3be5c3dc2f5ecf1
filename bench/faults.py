#!/usr/bin/env python3
"""Kills, stops and cuts off ranks of a run at random moments, and verifies that all of them end and that the run goes on.

  faults.py [--faults N] [--seed N] [--jobs N] [--only LAYOUT]... [--mpirun PROGRAM] [--report FILE.md]

Needs root and Open MPI. Each rank is on a node of its own: a network namespace with a host name, an address and a cable (a veth pair) to
a bridge; Open MPI starts its daemons there and has no connections but TCP's. Trains recipes/models/tiny with `determinism: bitwise`
in each layout below, N times. After a random step, something happens to a random rank:
  - kill: SIGKILL
  - stop: SIGSTOP
  - cable: its node's cable is unplugged, so that it reaches nobody
  - link: it and another rank no longer reach each other (routes that drop packets); both reach all others
Then
  - all processes of the run end
  - the message names the rank: a killed one by the launcher; of a stopped or unplugged one it says that it does not answer, and in what
    operation it was waited for; of a cut link it names both ends
  - the run goes on in another layout, from its last checkpoint, and each step has the loss and gradient norm of an unbroken run of one
    rank, and the model its bytes
A run that a cut link does not end, because its ranks have nothing to say to each other, must have the same curve and bytes.
Exit code 1: something did not. Build first: ./run build, ./run mpi.
"""
import argparse
import concurrent.futures
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

# The time-out of a run's first try. A machine that is busy may make a rank wait longer without any fault; then the fault is tried again
# with twice as much.
TIMEOUT_S = 6
# Seconds after the time-out when a run is taken to hang: far more than the roll call and the grace for leaving (src/comm).
LIMIT_S = 60

STEPS = 40
RANKS = 4
KINDS = ["kill", "stop", "cable", "link"]
TWO_PIPELINES = ["parallel.pp=2", "parallel.dp=2", "parallel.zero=1"]
LAYOUTS = {  # each with the settings that its faults take in turn
    "gpipe": [["parallel.schedule=gpipe", *TWO_PIPELINES], ["parallel.schedule=gpipe", "parallel.pp=4"]],
    "1f1b": [["parallel.schedule=1f1b", *TWO_PIPELINES], ["parallel.schedule=1f1b", "parallel.pp=4"]],
    "interleaved": [["parallel.schedule=interleaved", "parallel.chunks=2", *TWO_PIPELINES]],
    "zb_h1": [["parallel.schedule=zb_h1", *TWO_PIPELINES], ["parallel.schedule=zb_h1", "parallel.pp=4"]],
    "zb_v": [["parallel.schedule=zb_v", *TWO_PIPELINES]],
    "dp": [["parallel.dp=4"], ["parallel.dp=4", "parallel.zero=3"]],
}
CONTINUED = [[], ["parallel.dp=2"], ["parallel.dp=4", "parallel.zero=3"], ["parallel.pp=4", "parallel.schedule=1f1b"],
             ["parallel.pp=2", "parallel.schedule=zb_v"], ["parallel.pp=2", "parallel.dp=2", "parallel.schedule=gpipe"]]


class Nodes:
    """As many nodes as ranks, joined by a bridge in a further network namespace, from where mpirun starts."""

    def __init__(self, folder):
        self.holders = [self.hold("--net")]
        self.inside(0, "ip", "link", "add", "bridge", "type", "bridge")
        self.inside(0, "ip", "addr", "add", "10.9.0.100/24", "dev", "bridge")
        for name in ("lo", "bridge"):
            self.inside(0, "ip", "link", "set", name, "up")
        for rank in range(RANKS):
            node = rank + 1
            self.holders.append(self.hold("--net", "--uts"))
            self.inside(node, "hostname", f"node{rank}")
            self.inside(0, "ip", "link", "add", f"port{rank}", "type", "veth", "peer", "name", "cable", "netns",
                        str(self.holders[node].pid))
            self.inside(0, "ip", "link", "set", f"port{rank}", "master", "bridge", "up")
            self.inside(node, "ip", "addr", "add", f"{address(rank)}/24", "dev", "cable")
            for name in ("lo", "cable"):
                self.inside(node, "ip", "link", "set", name, "up")
        self.agent = folder / "agent"  # started by mpirun as `agent ADDRESS COMMAND`, in place of ssh
        cases = "".join(f"{address(rank)}) node={self.holders[rank + 1].pid} ;;\n" for rank in range(RANKS))
        self.agent.write_text(f'#!/bin/sh\ncase $1 in\n{cases}esac\nshift\nexec nsenter -t $node -n -u sh -c "$*"\n')
        self.agent.chmod(0o755)

    @staticmethod
    def hold(*namespaces):
        """A process with new namespaces, which ends with this program."""
        holder = subprocess.Popen(["unshare", *namespaces, "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        holder.stdout.readline()
        return holder

    def entered(self, node, *words):
        """The words of a command on a node; 0 is the bridge's."""
        return ["nsenter", "-t", str(self.holders[node].pid), "-n", *(["-u"] if node else []), *words]

    def inside(self, node, *words):
        subprocess.run(self.entered(node, *words), check=True)

    def unplug(self, rank):
        self.inside(0, "ip", "link", "set", f"port{rank}", "down")

    def cut(self, one, other):
        for here, there in ((one, other), (other, one)):
            self.inside(here + 1, "ip", "route", "add", "blackhole", address(there))

    def close(self):
        """Ends what still runs there: daemons and a launcher that have lost each other wait for ever."""
        networks = {os.readlink(f"/proc/{holder.pid}/ns/net") for holder in self.holders}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "ns/net") in networks:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:  # it has ended, or is not ours
                continue
        for holder in self.holders:
            holder.communicate()


def address(rank):
    return f"10.9.0.{rank + 1}"


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


def ranks_of(folder):
    """The process of each rank."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", (process / "environ").read_bytes())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if rank and str(folder / "recipe.yaml").encode() in words and words[0] == str(INGOT).encode():
            found[int(rank[1])] = int(process.name)
    return found


def wait_for_step(run, step, process):
    """Until the log has this many steps, or the run has ended."""
    log = run / "events.jsonl"
    while process.poll() is None and (not log.exists() or log.read_text().count('"type":"step"') < step):
        time.sleep(0.01)


def said(kind, rank, other):
    """What the messages of a run have to say."""
    if kind == "kill":
        return rf"process rank {rank} with PID"
    silent = rf"has waited \d+ s for other ranks in [^:]+: rank {{0}} on node{{0}} does not answer"
    if kind == "link":
        ends = [rf"rank {one} {silent.format(two)}" for one, two in ((rank, other), (other, rank))]
        return "|".join(ends)
    return silent.format(rank)


def break_off(folder, words, kind, rank, other, step, delay, timeout):
    """Runs until the fault, `delay` seconds after a step, ends it. Returns what is wrong, and the seconds from the fault until all ranks
    had ended: None if the run ended well. Raises Busy when ranks had waited too long before the fault."""
    limit = timeout + LIMIT_S
    log = folder / "log.txt"
    words = [word for word in words if not word.startswith("parallel.dp=")]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "tcp,self"}
    nodes = Nodes(folder)
    try:
        with log.open("w") as output:
            process = subprocess.Popen(
                nodes.entered(0, MPIRUN, "--bind-to", "none", "--mca", "plm_rsh_agent", str(nodes.agent), "--host",
                              ",".join(map(address, range(RANKS))), "-n", str(RANKS), *command(folder, words), f"threads={RANKS}",
                              f"parallel.timeout_s={timeout}"),
                cwd=ROOT, env=environment, stdout=output, stderr=output)
        wait_for_step(folder / "runs/run", step, process)
        time.sleep(delay)
        ranks = ranks_of(folder)
        if process.poll() is not None or rank not in ranks:
            if process.wait(limit) == 0:
                return "", None
            if f"has waited {timeout} s for" in log.read_text():
                raise Busy
            return f"ended before the fault: {log.read_text()[-1500:]}", None
        begin = time.monotonic()
        if kind == "cable":
            nodes.unplug(rank)
        elif kind == "link":
            nodes.cut(rank, other)
        else:
            os.kill(ranks[rank], signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        while ranks_of(folder):
            if time.monotonic() > begin + limit:
                return f"ranks {sorted(ranks_of(folder))} still run after {limit} s: {log.read_text()[-1500:]}", limit
            time.sleep(0.05)
        seconds = time.monotonic() - begin
        if kind != "cable":  # mpirun waits for ever for a node that it cannot reach; a cluster's scheduler ends it
            code = process.wait(limit)
            if code == 0:
                return ("", None) if kind == "link" else ("exit code 0", seconds)
        if not re.search(said(kind, rank, other), log.read_text()):
            return f"the message does not name it: {log.read_text()[-2500:]}", seconds
        return "", seconds
    finally:
        nodes.close()


def go_on(folder, words):
    """Continues the run in one process; returns what is wrong, and whether it began again because it had no checkpoint yet. On the
    machine of rank 0 by its name, which takes over the lock of the run's folder at once; others wait for a minute."""
    there = ["unshare", "--uts", "sh", "-c", 'hostname node0 && exec "$@"', "sh"]
    for resume in ("--resume", "--resume=fresh"):
        done = subprocess.run([*there, *command(folder, words), f"threads={RANKS}", resume], cwd=ROOT,
                              capture_output=True, text=True)
        if "there is no checkpoint to continue from" not in done.stderr:
            break
    return "" if done.returncode == 0 else f"does not go on: {done.stderr[-1500:]}", resume != "--resume"


def one_fault(scratch, expected, seed, name, number):
    """A fault that has ended its run, or was survived by it. Returns its kind and what became of it."""
    kind = KINDS[number % len(KINDS)]
    words = LAYOUTS[name][number // len(KINDS) % len(LAYOUTS[name])]
    draw = random.Random(f"{seed} {name} {number}")
    folder = scratch / f"{name}-{number}"
    timeout = TIMEOUT_S
    while True:
        rank, other = draw.sample(range(RANKS), 2)
        step, delay, layout = draw.randint(1, STEPS), draw.uniform(0, 0.2), draw.choice(CONTINUED)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_recipe(folder)
        try:
            wrong, seconds = break_off(folder, words, kind, rank, other, step, delay, timeout)
        except Busy:
            timeout *= 2
            continue
        if seconds is not None or wrong or kind == "link":
            break  # else it ended before the fault
    if seconds is not None and kind != "kill":
        seconds -= timeout
    text = f"{kind} of rank {rank}" + (f" and {other}" if kind == "link" else "") + f" at step {step} of {' '.join(words)}"
    fresh = False
    if seconds is not None:
        end, fresh = go_on(folder, layout)
        if end:
            wrong += f"; then {' '.join(layout)}: {end}"
    if not wrong and result(folder / "runs/run") != expected:
        wrong = f"then {' '.join(layout)}: another curve or model"
    shutil.rmtree(folder)
    print(f"{name} {number}: {text}: " + (wrong or ("survived" if seconds is None else f"{seconds:.1f} s")), file=sys.stderr, flush=True)
    return kind, seconds, fresh, f"{text}: {wrong}" if wrong else ""


class Busy(Exception):
    """A run ended by its time-out before the fault."""


def write_recipe(folder):
    (folder / "recipe.yaml").write_text(
        f"name: run\nmodel: {ROOT}/recipes/models/tiny\ninit: random\nrun_dir: {folder}/runs\ndevice: cpu\n"
        f"data: {{train: {ROOT}/data/sotu/heldout.jsonl, format: text, sequence_length: 64}}\ndeterminism: bitwise\n"
        f"batch: {{global: 8, micro: 1}}\ncheckpoint: {{every: 4}}\n")


def processor():
    values = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M))
    return f"{values['model name']} (family {values['cpu family']}, model {values['model']}), {os.cpu_count()} CPUs"


def row(name, outcomes):
    cells = [name]
    for kind in KINDS:
        times = [seconds for each, seconds, _, _ in outcomes if each == kind and seconds is not None]
        survived = sum(1 for each, seconds, _, wrong in outcomes if each == kind and seconds is None and not wrong)
        text = f"{len(times)} in {min(times):.1f} to {max(times):.1f} s" if times else "0"
        cells.append(text + (f", {survived} survived" if survived else ""))
    cells += [str(sum(fresh for _, _, fresh, _ in outcomes)), str(sum(bool(wrong) for _, _, _, wrong in outcomes))]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=8, help="of each layout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--only", choices=list(LAYOUTS), action="append")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("faults.py needs root, for networks of its own")
    global MPIRUN
    MPIRUN = options.mpirun
    names = options.only or list(LAYOUTS)
    tree = commit()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        folder = pathlib.Path(scratch)
        write_recipe(folder)
        subprocess.run([*command(folder, []), "threads=2"], cwd=ROOT, check=True, capture_output=True)
        expected = result(folder / "runs/run")
        faults = {name: [pool.submit(one_fault, folder, expected, options.seed, name, number) for number in range(options.faults)]
                  for name in names}
        outcomes = {name: [each.result() for each in faults[name]] for name in names}
    failures = [f"- {name}: {wrong}" for name in names for _, _, _, wrong in outcomes[name] if wrong]
    lines = [f"# Faults ({time.strftime('%Y-%m-%d')})", "",
             f"`bench/faults.py --faults {options.faults} --seed {options.seed} --jobs {options.jobs}`, commit {tree}, {processor()}: "
             f"the tiny model on {RANKS} processes of Open MPI, each with a network of its own; {STEPS} steps, checkpoints every 4. "
             "At a random moment a rank is killed, stopped, its cable is unplugged, or the link of two ranks is cut. All ranks must end, the "
             "message must name the rank, and the run must go on in another layout with the bits of an unbroken one.", "",
             "| layout | killed | stopped | cable unplugged | link cut | before the first checkpoint | wrong |", "|---|---|---|---|---|---|---|",
             *[row(name, outcomes[name]) for name in names], "",
             "Seconds are from the fault until the last rank had ended, without `parallel.timeout_s`, which ranks wait for if none was "
             "killed. \"Survived\": the ranks of the link that was cut did not need it.", ""]
    write_report("\n".join(lines + failures), options.report)
    if failures:
        sys.exit(1)


MPIRUN = ""

if __name__ == "__main__":
    main()

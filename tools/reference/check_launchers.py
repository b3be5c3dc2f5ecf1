#!/usr/bin/env python3
"""Eight ranks that real launchers start: mpirun of Open MPI and of MPICH, and srun of a SLURM cluster. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_launchers.py [--requeue]

The cluster is this machine: the distribution's slurmctld and slurmd with a configuration, ports and folders of their own. The tiny model
is trained by eight ranks, and each run must have the losses, the gradient norms and the weights of another:

* parallel.tp, pp and dp of 2, ZeRO 1: under MPICH's mpirun those of Open MPI's mpirun;
* the same by `srun --mpi=pmix` (Open MPI);
* four stages, two data-parallel ranks, ZeRO 1, `determinism: bitwise`, by `srun --mpi=pmi2` (MPICH): those of one process.

With --requeue srun is called by a batch job that is requeued (`scontrol requeue`) after its first checkpoint and continues from it. It is
not part of `./run oracles`, since it waits for SLURM's own processes: on a loaded machine the end of the first run's script was once taken
for that of the second.

Exit status 1 at the first difference; 77 where SLURM or an MPI is missing.
"""
import getpass
import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
RANKS = 8
STEPS = 24
CUT = ["parallel.tp=2", "parallel.pp=2", "parallel.zero=1"]
STAGES = ["parallel.pp=4", "parallel.zero=1", "determinism=bitwise"]
PATIENCE_S = 300
NEEDED = ["slurmctld", "slurmd", "srun", "sbatch", "scontrol", "mpirun.openmpi", "mpicc.openmpi", "mpirun.mpich", "mpicc.mpich"]


def wait_for(what, condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {PATIENCE_S} s")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stepds(job, configuration):
    """The processes of the cluster with this configuration that run the job."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            own = configuration.encode() in (path.parent / "environ").read_bytes()
            if own and path.read_text().startswith(f"slurmstepd: [{job}."):
                found.append(path)
        except OSError:
            pass  # it has ended
    return found


def events(run):
    path = run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def result(run):
    """Loss and gradient norm of each step, the last time that it was done, and the model's hash."""
    steps = {e["step"]: (e["loss"], e["grad_norm"]) for e in events(run) if e["type"] == "step"}
    return steps, hashlib.sha256((run / "model/model.safetensors").read_bytes()).hexdigest()


class Launchers:
    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        (folder / "recipe.yaml").write_text(
            f"name: run\nmodel: {ROOT}/recipes/models/tiny\ninit: random\ndevice: cpu\n"
            f"data: {{train: {ROOT}/data/sotu/heldout.jsonl, format: text, sequence_length: 32}}\n"
            f"steps: {STEPS}\nbatch: {{global: 8, micro: 1}}\ncheckpoint: {{every: 4}}\n")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "PMI", "INGOT_MPI"))}
        self.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "SLURM_CONF": str(folder / "slurm.conf")}
        for mpi in ("openmpi", "mpich"):
            subprocess.run([ROOT / "tools/mpi_plugin.sh", self.plugin(mpi)], check=True, env={**self.environment, "MPICC": f"mpicc.{mpi}"})

    def plugin(self, mpi):
        return str(self.folder / f"{mpi}.so")

    def command(self, name, words):
        return [INGOT, "pretrain", str(self.folder / "recipe.yaml"), f"run_dir={self.folder / name}", *words]

    def train(self, name, words, launcher=(), mpi="openmpi"):
        """A run that nothing interrupts."""
        done = subprocess.run([*launcher, *self.command(name, words)], capture_output=True, text=True,
                              env={**self.environment, "INGOT_MPI": self.plugin(mpi)})
        if done.returncode != 0:
            sys.exit(f"{name}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        return result(self.folder / name / "run")

    def slurm(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: {done.stderr}")
        return done.stdout.strip()

    def start_cluster(self):
        host = socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(f"""
ClusterName=oracle
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=60
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
NodeName={host} NodeAddr=127.0.0.1 CPUs={RANKS} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
""")
        for daemon in (["slurmctld", "-D"], ["slurmd", "-D", "-N", host]):
            with (self.folder / f"{daemon[0]}.log").open("w") as log:
                self.daemons.append(subprocess.Popen(daemon, stdout=log, stderr=log, env=self.environment))
        wait_for("SLURM's node is idle", lambda: subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True,
                                                               env=self.environment).stdout.strip() == "idle")

    def requeue(self, name, words, mpi, srun_mpi):
        """A run by srun in a batch job that is requeued after its first checkpoint."""
        run, log = self.folder / name / "run", self.folder / f"{name}.log"
        script = self.folder / f"{name}.sh"
        ranks = ["srun", f"--mpi={srun_mpi}", "-n", str(RANKS), *self.command(name, words), "--resume=auto"]
        script.write_text(f"#!/bin/sh\nexport INGOT_MPI={self.plugin(mpi)}\nexec {shlex.join(ranks)}\n")
        job = self.slurm("sbatch", "--parsable", "-n", str(RANKS), "--requeue", "--open-mode=append", f"--output={log}", str(script))

        def state(field):
            return dict(word.split("=", 1) for word in self.slurm("scontrol", "show", "job", job).split() if "=" in word)[field]

        def ended():
            if state("JobState") in ("FAILED", "CANCELLED", "NODE_FAIL"):
                sys.exit(f"{name}: {state('JobState')}: {log.read_text()}")
            return state("JobState") == "COMPLETED"

        wait_for(f"{name}: the first checkpoint", lambda: ended() or (run / "checkpoints/step-4").exists())
        self.slurm("scontrol", "requeue", job)
        wait_for(f"{name}: the job is queued again", lambda: state("JobState") == "PENDING")
        # What the first run's script reports when it ends would be taken for the end of the second, which SLURM starts after two
        # minutes for this reason.
        wait_for(f"{name}: the first run's script has ended", lambda: not stepds(job, self.environment["SLURM_CONF"]))
        self.slurm("scontrol", "update", f"JobId={job}", "StartTime=now")
        wait_for(f"{name}: the job's end", ended)
        starts = [e for e in events(run) if e["type"] == "start"]
        if [e["resumed"] for e in starts] != [False, True] or [e["ranks"] for e in starts] != [RANKS, RANKS]:
            sys.exit(f"{name}: it was not requeued and continued by {RANKS} ranks: {starts}; {log.read_text()}")
        return result(run), starts[1]["first_step"]

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait()


def main():
    requeues = sys.argv[1:] == ["--requeue"]
    if sys.argv[1:] and not requeues:
        sys.exit(f"usage: {Path(__file__).name} [--requeue]")
    missing = [name for name in NEEDED if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]
    if missing:
        print(f"left out: {', '.join(missing)} not found")
        sys.exit(77)
    os.environ["PATH"] += ":/usr/sbin"
    with tempfile.TemporaryDirectory() as scratch:
        launchers = Launchers(Path(scratch))
        try:
            cut = launchers.train("openmpi", CUT, ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", str(RANKS)])
            if len(cut[0]) != STEPS:
                sys.exit(f"{len(cut[0])} of {STEPS} steps")
            if launchers.train("mpich-run", CUT, ["mpirun.mpich", "-n", str(RANKS)], "mpich") != cut:
                sys.exit("MPICH's mpirun: other losses or weights than with Open MPI's")
            one = launchers.train("one", ["determinism=bitwise"])
            launchers.start_cluster()
            for name, words, mpi, srun_mpi, expected in (("pmix", CUT, "openmpi", "pmix", cut), ("pmi2", STAGES, "mpich", "pmi2", one)):
                done = ""
                if requeues:
                    found, step = launchers.requeue(name, words, mpi, srun_mpi)
                    done = f", requeued, continued from step {step}"
                else:
                    found = launchers.train(name, words, ["srun", f"--mpi={srun_mpi}", "-n", str(RANKS)], mpi)
                if found != expected:
                    sys.exit(f"srun --mpi={srun_mpi}{done}: other losses or weights")
                print(f"srun --mpi={srun_mpi}: {RANKS} ranks{done}, the same losses and weights")
        finally:
            launchers.close()


if __name__ == "__main__":
    main()

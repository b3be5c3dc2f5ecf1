#!/usr/bin/env python3
"""Makes tests/golden/data/streaming*.json: sample orders of MosaicML Streaming (pip install mosaicml-streaming).

Release 0.13 makes streaming.json. Release 0.9, the last one with the shuffle py1b, makes streaming_py1b.json. `--check`
compares with the files instead of writing."""
import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from streaming.base import MDSWriter, StreamingDataset, Stream
from streaming.base.partition import get_partitions
from streaming.base.shuffle import algos, get_shuffle
from streaming.base.util import clean_stale_shared_memory
from streaming.base.world import World

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "data"
SHARDS = [[4, 3, 5], [1, 7, 2, 30, 11, 9], [64, 64, 64, 40], [2] * 9]


def shuffles(names):
    cases = []
    for sizes in SHARDS:
        for nodes in (1, 2, 4):
            for name in names:
                for epoch, block in ((0, 8), (3, 24)):
                    ids = get_shuffle(name, np.array(sizes), nodes, 9176, epoch, block)
                    cases.append({"algorithm": name, "units": sizes, "nodes": nodes, "epoch": epoch, "block": block, "ids": ids.tolist()})
    return cases


def partitions():
    """For each case either the ids, or null when Streaming fails."""
    cases = []
    for samples in (12, 11, 23, 3):
        for canonical, nodes, initial in ((1, 1, None), (2, 1, None), (2, 4, None), (6, 3, None), (4, 2, 1), (4, 3, 2), (2, 6, 1), (3, 2, None)):
            for ranks, workers, batch, drop in ((1, 1, 2, 0), (2, 2, 1, 4), (3, 1, 2, 0)):
                for name in ("orig", "relaxed"):
                    case = {"algorithm": name, "samples": samples, "canonical": canonical, "nodes": nodes, "initial": initial,
                            "ranks": ranks, "workers": workers, "batch": batch, "drop": drop}
                    try:
                        case["ids"] = get_partitions(name, samples, canonical, nodes, ranks, workers, batch, drop, initial).flatten().tolist()
                    except ValueError:
                        case["ids"] = None
                    cases.append(case)
    return cases


def world_of(nodes, ranks, workers):
    world = World.detect() if hasattr(World, "detect") else World()
    for key, value in {"node": 0, "num_nodes": nodes, "is_multinode": nodes > 1, "rank_of_node": 0, "ranks_per_node": ranks, "rank": 0,
                       "num_ranks": nodes * ranks, "worker_of_rank": 0, "workers_per_rank": workers, "worker": 0,
                       "workers_per_node": ranks * workers, "num_workers": nodes * ranks * workers, "is_leader": True, "is_local_leader": True}.items():
        setattr(world, key, value)
    return world


def datasets():
    """Streams of real shards through StreamingDataset; the cluster is simulated."""
    from streaming.base.batching import generate_work
    cases = []
    with tempfile.TemporaryDirectory() as root:
        sizes = [[4, 3, 5], [9, 2], [6, 6, 1]]
        for number, shards in enumerate(sizes):
            folder = Path(root) / str(number)
            with MDSWriter(columns={"x": "int"}, out=str(folder), size_limit=None) as writer:
                for size in shards:
                    for x in range(size):
                        writer.write({"x": x})
                    writer.flush_shard()
                    writer._reset_cache()
        weights = [[{}], [{}, {}], [{"proportion": 1}, {"proportion": 2.5}, {"proportion": 0.3}], [{"repeat": 1.5}, {"choose": 5}, {}],
                   [{"proportion": 3}, {"proportion": 1}]]
        number = 0
        for streams in weights:
            for shuffle, partition in [(name, partition) for name in sorted(algos) for partition in ("orig", "relaxed")] + [(None, "relaxed")]:
                number += 1
                relative = "proportion" in streams[0]
                arguments = {"shuffle": shuffle is not None, "shuffle_algo": shuffle or "py1e", "partition_algo": partition,
                             "sampling_method": ("balanced", "fixed")[number % 2], "sampling_granularity": (1, 2)[number % 3 == 0],
                             "num_canonical_nodes": (2, 4, None)[number % 3], "shuffle_block_size": (6, None)[number % 4 == 0],
                             "shuffle_seed": (9176, 3)[number % 5 == 0], "epoch_size": 20 if relative and number % 2 else None}
                clean_stale_shared_memory()
                dataset = StreamingDataset(streams=[Stream(local=str(Path(root) / str(i)), **weight) for i, weight in enumerate(streams)],
                                           batch_size=2, **arguments)
                canonical = dataset.num_canonical_nodes
                if canonical is None:  # as StreamingDataset's _resume resolves it at the start of a run
                    canonical = 64 * 2 if arguments["shuffle_algo"] in ("py1s", "py2s") else 2
                dataset.num_canonical_nodes = canonical
                dataset._set_shuffle_block_size(dataset._unique_rank_world)
                works = []
                # Started on 2 nodes, resumed on others with the same global batch of 12.
                for epoch, drop, initial, nodes, ranks, workers, batch in ((0, 0, None, 2, 2, 1, 3), (1, 0, None, 2, 1, 2, 6), (1, 12, 2, 1, 2, 2, 6),
                                                                           (0, 12, 2, 3, 2, 1, 2)):
                    work = {"epoch": epoch, "drop": drop, "initial": initial, "nodes": nodes, "ranks": ranks, "workers": workers, "batch": batch}
                    dataset.initial_physical_nodes = initial
                    dataset.batch_size = batch
                    try:
                        work["ids"] = generate_work("random", dataset, world_of(nodes, ranks, workers), epoch, drop).flatten().tolist()
                    except ValueError:
                        work["ids"] = None
                    works.append(work)
                cases.append({"streams": [{"shards": sizes[i], **weight} for i, weight in enumerate(streams)], "arguments": arguments,
                              "canonical": canonical, "works": works})
                del dataset
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    warnings.simplefilter("ignore")
    if "py1b" in algos:
        name, parts = "streaming_py1b.json", {"shuffles": shuffles(["py1b"])}
    else:
        name, parts = "streaming.json", {"shuffles": shuffles(sorted(algos)), "partitions": partitions(), "datasets": datasets()}
    # A case a line.
    text = "{\n" + ",\n".join(f'"{key}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "]" for key, cases in parts.items()) + "}\n"
    if check:
        same = (GOLDEN / name).read_text() == text
        print(f"{name}: {'the same' if same else 'DIFFERS'}")
        return 0 if same else 1
    (GOLDEN / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

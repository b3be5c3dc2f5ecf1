#!/usr/bin/env python3
"""Compares `ingot data order` with data.order: streaming with MosaicML Streaming, over whole epochs.

The clusters have several nodes and ranks, and global batches that do not divide the epoch. The global batches of each epoch must
equal those of a DataLoader with drop_last over the lists that StreamingDataset gives each rank. Exit code 77 when
mosaicml-streaming is not installed."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from check_mds import import_streaming


def cluster(nodes, ranks):
    from streaming.base.world import World
    world = World.detect() if hasattr(World, "detect") else World()
    for key, value in {"node": 0, "num_nodes": nodes, "is_multinode": nodes > 1, "rank_of_node": 0, "ranks_per_node": ranks, "rank": 0,
                       "num_ranks": nodes * ranks, "worker_of_rank": 0, "workers_per_rank": 1, "worker": 0, "workers_per_node": ranks,
                       "num_workers": nodes * ranks, "is_leader": True, "is_local_leader": True}.items():
        setattr(world, key, value)
    return world


def batches(folder, nodes, ranks, batch, shuffle, epoch):
    """The global batches of an epoch, each sorted."""
    from streaming import StreamingDataset
    from streaming.base.batching import generate_work
    from streaming.base.util import clean_stale_shared_memory
    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(folder), batch_size=batch, shuffle=shuffle, num_canonical_nodes=nodes)
    dataset._set_shuffle_block_size(dataset._unique_rank_world)
    dataset.initial_physical_nodes = nodes
    ids = generate_work("random", dataset, cluster(nodes, ranks), epoch, 0)  # [nodes, ranks, 1, batches, batch]
    per_rank = ids.reshape(nodes * ranks, -1, batch)
    full = [k for k in range(per_rank.shape[1]) if (per_rank[:, k] >= 0).all()]
    return [sorted(per_rank[:, k].flatten().tolist()) for k in full]


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        writer_class, _ = import_streaming()
    except ImportError as error:
        print(f"left out: {error}")
        return 77
    ingot = os.environ.get("INGOT_EXECUTABLE", "build/release/ingot")
    problems = compared = longer = 0
    with tempfile.TemporaryDirectory() as root:
        for samples in (46, 97):
            folder = Path(root) / str(samples)
            with writer_class(columns={"text": "str"}, out=str(folder), size_limit=200) as writer:
                for i in range(samples):
                    writer.write({"text": str(i)})
            for nodes, ranks, batch in ((1, 1, 8), (1, 2, 4), (1, 4, 2), (2, 2, 2), (2, 4, 3), (4, 2, 1), (2, 6, 2), (1, 16, 1)):
                for shuffle in (False, True):
                    recipe = Path(root) / "recipe.yaml"
                    recipe.write_text(f"name: x\nmodel: none\nepochs: 3\nbatch: {{global: {nodes * ranks * batch}}}\n"
                                      f"data: {{train: {folder}, packing: false, order: streaming, "
                                      f"streaming: {{shuffle: {str(shuffle).lower()}, nodes: {nodes}, ranks: {ranks}}}}}\n")
                    for epoch in (0, 2):
                        out = subprocess.run([ingot, "data", "order", str(recipe), "--epoch", str(epoch), "--json"], check=True,
                                             stdout=subprocess.PIPE).stdout
                        ours = [sorted(step["samples"]) for step in json.loads(out)["steps"]]
                        theirs = batches(folder, nodes, ranks, batch, shuffle, epoch)
                        compared += 1
                        longer += len(theirs) != samples // (nodes * ranks * batch)
                        if ours != theirs:
                            problems += 1
                            print(f"{samples} samples, {nodes} x {ranks} x {batch}, shuffle {shuffle}, epoch {epoch}: {len(ours)} and {len(theirs)} batches, DIFFERENT")
    print(f"{compared} epochs compared, {longer} of them with an additional batch of repeated samples, {problems} different")
    return 1 if problems or not longer else 0


if __name__ == "__main__":
    sys.exit(main())

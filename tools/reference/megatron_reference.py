"""Data sets and their sample orders by Megatron-LM (pip install megatron-core torch numpy; no GPU is needed).

Used by make_megatron_golden.py, which makes small ones for the tests, and by check_megatron.py, which makes random ones."""
import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")


class Tokenizer:
    """The part of a tokenizer that the data sets need: a token that ends documents, and no padding."""
    vocab_size = 65536
    eod = 0
    eos = 0
    unique_identifiers = {"class": "none"}

    @property
    def pad(self):
        raise NotImplementedError


def write(prefix, documents, dtype):
    """documents: a list of documents, each a list of sequences, each a list of tokens."""
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for sequences in documents:
        for tokens in sequences:
            builder.add_item(torch.tensor(tokens, dtype=torch.int64))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")



def documents_of(lengths, source):
    """The tokens of a case, which are a function of its document lengths."""
    numbers = iter(range(source * 10000, source * 10000 + sum(lengths)))
    return [[[next(numbers) % 60000 for _ in range(length)]] for length in lengths]


def order(case, folder=None):
    """Megatron's order of a case: {"sources": [{"lengths", "weight"?}], "sequence_length", "seed", "num_samples"?, "split"?,
    "part"?, "drop_last_partial"?}. Part 1 of a split is its validation set, the only one whose partial last sample is kept;
    its padding is -1. Without a split the sources are the blend for training only."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(folder or temporary)
        prefixes = []
        for number, source in enumerate(case["sources"]):
            prefixes.append(str(folder / f"source{number}"))
            write(prefixes[-1], documents_of(source["lengths"], number), np.uint16)
        weights = [source["weight"] for source in case["sources"]] if "weight" in case["sources"][0] else None
        part = case.get("part", 0)
        blend = {"blend": (prefixes, weights), "split": case["split"]} if case.get("split") else {
            "blend_per_split": [(prefixes, weights), None, None]}
        config = GPTDatasetConfig(random_seed=case["seed"], sequence_length=case["sequence_length"], tokenizer=Tokenizer(),
                                  reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
                                  create_attention_mask=False,
                                  drop_last_partial_validation_sequence=case.get("drop_last_partial", True), **blend)
        sizes = [0, 0, 0]
        sizes[part] = case.get("num_samples")
        if sizes[part] is None:
            sizes = [None, None, None]
        built = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[part]
        blended = type(built).__name__ == "BlendedDataset"
        members = built.datasets if blended else [built]
        result = {"size": len(built), "sources": []}
        if blended:
            result["dataset_index"] = built.dataset_index.tolist()
            result["dataset_sample_index"] = built.dataset_sample_index.tolist()
        for member in members:
            result["sources"].append({"document_index": member.document_index.tolist(),
                                      "sample_index": member.sample_index.tolist(),
                                      "shuffle_index": member.shuffle_index.tolist()})
        result["samples"] = []
        for index in range(min(len(built), case.get("samples", 0))):
            if not case.get("drop_last_partial", True):
                # The index only: an item's loss mask is computed for the first item that is read and reused.
                member, sample = (0, index) if not blended else (built.dataset_index[index], built.dataset_sample_index[index])
                result["samples"].append(members[member]._query_document_sample_shuffle_indices(sample)[0].tolist())
                continue
            sample = built[index]
            result["samples"].append(sample["tokens"].tolist() + sample["labels"].tolist()[-1:])
            assert sample["tokens"].tolist()[1:] == sample["labels"].tolist()[:-1]
            assert bool((sample["loss_mask"] == 1).all())
        return result

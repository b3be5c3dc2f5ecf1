#!/usr/bin/env python3
"""Makes tests/golden/formats/ with the official safetensors, gguf and numpy packages (pip install safetensors gguf numpy).

tests/formats/ contains the expected values. `--check` makes the files in a temporary folder and compares instead of writing."""
import argparse
import pickle
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from safetensors import TensorSpec, serialize_file

# (dtype in serialize_file's spelling, bits)
DTYPES = [("bool", 8), ("uint8", 8), ("int8", 8), ("float8_e5m2", 8), ("float8_e4m3fn", 8),
          ("int16", 16), ("uint16", 16), ("float16", 16), ("bfloat16", 16), ("int32", 32), ("uint32", 32), ("float32", 32), ("float64", 64), ("int64", 64),
          ("uint64", 64)]


def make_safetensors(folder):
    tensors = {}
    for number, (dtype, bits) in enumerate(DTYPES):
        data = bytes((number + i) % 2 if dtype == "bool" else (16 * number + i) % 256 for i in range(6 * bits // 8))
        tensors[f"z.{dtype}"] = {"dtype": dtype, "shape": [2, 3], "data": data}
    tensors["b.f32"] = {"dtype": "float32", "shape": [2], "data": np.array([1.5, -2.0], "<f4").tobytes()}
    tensors["a.scalar"] = {"dtype": "float32", "shape": [], "data": np.array(3.0, "<f4").tobytes()}
    tensors["empty"] = {"dtype": "float32", "shape": [0, 4], "data": b""}
    tensors['quote " and \u00e9 \t'] = {"dtype": "uint8", "shape": [1], "data": b"\x07"}
    buffers = {name: np.frombuffer(tensor["data"] or b" ", np.uint8) for name, tensor in tensors.items()}  # kept alive
    specs = {name: TensorSpec(dtype=tensor["dtype"], shape=tensor["shape"], data_ptr=buffers[name].ctypes.data,
                              data_len=len(tensor["data"])) for name, tensor in tensors.items()}
    serialize_file(specs, str(folder / "official.safetensors"), {"format": "pt"})
    serialize_file({}, str(folder / "no_tensors.safetensors"), None)


def make_gguf(folder):
    writer = gguf.GGUFWriter(str(folder / "official.gguf"), "llama")
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 60000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4000000000)
    writer.add_int32("t.i32", -2000000000)
    writer.add_float32("t.f32", 0.5)
    writer.add_bool("t.bool", True)
    writer.add_string("t.string", "d\u00e9j\u00e0 vu")
    writer.add_uint64("t.u64", 2**63 + 5)
    writer.add_int64("t.i64", -(2**40))
    writer.add_float64("t.f64", 1e-300)
    writer.add_array("t.strings", ["a", "", "bcd"])
    writer.add_array("t.ints", [1, -2, 3])
    writer.add_array("t.floats", [0.25, -1.0])
    writer.add_array("t.bools", [True, False, True])
    writer.add_custom_alignment(64)
    writer.add_tensor("output_norm.weight", np.arange(4, dtype=np.float32))
    writer.add_tensor("token_embd.weight", np.arange(6, dtype=np.float16).reshape(2, 3))
    rows = np.arange(-32, 32, dtype=np.float32).reshape(2, 32)
    writer.add_tensor("blk.0.attn_q.weight", gguf.quantize(rows, gguf.GGMLQuantizationType.Q8_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("cube", np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    vocabulary = gguf.GGUFWriter(str(folder / "vocabulary.gguf"), "llama")
    vocabulary.add_token_list(["<s>", "a"])
    vocabulary.write_header_to_file()
    vocabulary.write_kv_data_to_file()
    vocabulary.close()


def make_npy(folder):
    for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        np.save(folder / f"{kind}.npy", np.arange(6).reshape(2, 3).astype("<" + kind))
    np.save(folder / "bool.npy", np.array([True, False, True]))
    np.save(folder / "scalar.npy", np.array(2.5, "<f4"))
    np.save(folder / "empty.npy", np.zeros((0, 3), "<f4"))
    np.save(folder / "fortran.npy", np.asfortranarray(np.arange(6, dtype="<f4").reshape(2, 3)))
    np.save(folder / "big_endian.npy", np.arange(3).astype(">f4"))
    np.save(folder / "record.npy", np.zeros(2, dtype=[("a", "<i4"), ("b", "<f4")]))
    with open(folder / "version2.npy", "wb") as file:
        np.lib.format.write_array(file, np.arange(4, dtype="<i4"), version=(2, 0))


def govreport_rows():
    """GovReport as MLPerf's submitters store it: packed tokens, 1 where the next token is a loss token, document offsets."""
    rows = []
    for r in range(3):
        ids = [1] + [(r * 7919 + i * 104729) % 32000 for i in range(38)] + [2]
        rows.append({"input_ids": ids, "loss_mask": [int(i >= 10 + r) for i in range(40)], "seq_start_id": [0]})
    return rows


def objects(items):
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def make_object_npy(folder):
    np.save(folder / "object.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    np.save(folder / "object_2d.npy", np.array([[1, "b"], [None, 2.5]], dtype=object), allow_pickle=True)
    np.save(folder / "object_empty.npy", objects([]), allow_pickle=True)
    rows = govreport_rows()
    np.save(folder / "govreport.npy", objects(rows), allow_pickle=True)
    arrays = [{key: np.array(value, "<i8" if key == "input_ids" else "<u1") for key, value in row.items()} for row in rows]
    np.save(folder / "govreport_arrays.npy", objects(arrays), allow_pickle=True)
    np.save(folder / "ragged.npy", objects([[5, 6, 7], list(range(1500)), [300000]]), allow_pickle=True)


def make_pickles(folder):
    row = [1, 2]
    plain = [None, True, False, 0, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**63), 1.5, -0.0, "text", "d\u00e9j\u00e0",
             "x" * 300, b"by\xff\x00", b"", b"y" * 300, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [3], {}, {"a": row, "b": {"c": row}}]
    arrays = {"i8": np.arange(3), "f4": np.array([[0.5, -1]], "<f4"), "bool": np.array([True, False]), "none": np.zeros((2, 0), "<i2"), "zero": np.array(7, "<u2"),
              "objects": objects(["a", [1]]), "scalars": [np.int64(-7), np.float32(1.5), np.float16(0.25), np.uint8(200), np.bool_(True)]}
    for protocol in range(2, 6):
        (folder / f"plain{protocol}.pkl").write_bytes(pickle.dumps(plain, protocol))
        (folder / f"arrays{protocol}.pkl").write_bytes(pickle.dumps(arrays, protocol))


def make(folder):
    make_safetensors(folder)
    make_gguf(folder)
    (folder / "npy").mkdir(exist_ok=True)
    make_npy(folder / "npy")
    make_object_npy(folder / "npy")
    (folder / "pickle").mkdir(exist_ok=True)
    make_pickles(folder / "pickle")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    folder = Path(__file__).resolve().parents[2] / "tests/golden/formats"
    if not args.check:
        folder.mkdir(parents=True, exist_ok=True)
        make(folder)
        return
    with tempfile.TemporaryDirectory() as scratch:
        make(Path(scratch))
        made = sorted(path for path in Path(scratch).rglob("*") if path.is_file())
        different = [str(path.relative_to(scratch)) for path in made
                     if (folder / path.relative_to(scratch)).read_bytes() != path.read_bytes()]
    if different:
        sys.exit(f"differ from what is committed: {', '.join(different)}")


if __name__ == "__main__":
    main()

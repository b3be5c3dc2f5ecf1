#!/usr/bin/env python3
"""Files under tests/golden/formats/ by the official safetensors, gguf and numpy packages (pip install safetensors gguf numpy).

tests/formats/ knows what they hold. `--check` makes them in a temporary folder and compares instead of writing."""
import argparse
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from safetensors import TensorSpec, serialize_file

# (dtype as serialize_file spells it, bits)
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
    np.save(folder / "object.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    np.save(folder / "record.npy", np.zeros(2, dtype=[("a", "<i4"), ("b", "<f4")]))
    with open(folder / "version2.npy", "wb") as file:
        np.lib.format.write_array(file, np.arange(4, dtype="<i4"), version=(2, 0))


def make(folder):
    make_safetensors(folder)
    make_gguf(folder)
    (folder / "npy").mkdir(exist_ok=True)
    make_npy(folder / "npy")


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

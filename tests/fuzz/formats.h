// The fuzz targets of formats/, also used by the corpus test: they read a file and touch the first and last byte of
// everything that the reader returns. They return normally or throw ingot::Error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "formats/compression.h"
#include "formats/gguf.h"
#include "formats/mds.h"
#include "formats/megatron.h"
#include "formats/npy.h"
#include "formats/safetensors.h"

namespace ingot::formats::fuzz {

inline void touch(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  [[maybe_unused]] volatile std::byte read = bytes.front();
  read = bytes.back();
}

// True when the file was accepted.
inline bool read_safetensors(std::span<const std::byte> bytes) {
  try {
    const SafetensorsFile file(bytes, "fuzz");
    for (const TensorEntry& entry : file.entries()) touch(file.at(entry.name).bytes);
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

inline bool read_gguf(std::span<const std::byte> bytes) {
  try {
    const GgufFile file(bytes, "fuzz");
    for (const GgufTensor& tensor : file.tensors()) touch(file.at(tensor.name).bytes);
    for (const auto& [key, value] : file.metadata().items()) {
      if (const GgufArray* list = std::get_if<GgufArray>(&value)) {
        if (std::holds_alternative<std::vector<std::string>>(list->items)) {
          file.metadata().texts(key);
        } else if (!std::holds_alternative<std::vector<bool>>(list->items)) {
          file.metadata().reals(key);
        }
      }
    }
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

// Visits at most `left` nested values: a small file can refer to a value many times.
inline void touch(const Pickle& pickle, PickleValue value, int64_t& left) {
  using Kind = PickleValue::Kind;
  if (--left < 0) return;
  if (value.kind() == Kind::text || value.kind() == Kind::bytes) {
    touch(std::as_bytes(std::span(pickle.string(value))));
  } else if (value.kind() == Kind::list || value.kind() == Kind::tuple) {
    for (const PickleValue item : pickle.items(value)) touch(pickle, item, left);
  } else if (value.kind() == Kind::dict) {
    if (const PickleValue* found = pickle.find(value, "input_ids")) touch(pickle, *found, left);
  } else if (value.kind() == Kind::array) {
    const PickleArray& array = pickle.array(value);
    touch(std::as_bytes(std::span(array.data)));
    if (array.dtype == "O") touch(pickle, array.objects, left);
  }
}

inline bool read_npy(std::span<const std::byte> bytes) {
  try {
    const NpyFile file(bytes, "fuzz");
    touch(file.bytes());
    int64_t left = 10'000;
    for (const PickleValue value : file.objects()) touch(file.pickle(), value, left);
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

// Input: an index, then (u64) the size of a .bin of zero bytes, of which at most 64 KiB are created.
inline bool read_megatron(std::span<const std::byte> bytes) {
  try {
    uint64_t size = 0;
    if (bytes.size() < sizeof(size)) return false;
    std::memcpy(&size, bytes.last(sizeof(size)).data(), sizeof(size));
    const std::vector<std::byte> tokens(std::min<uint64_t>(size, 1 << 16));
    const MegatronFile file(bytes.first(bytes.size() - sizeof(size)), tokens, "fuzz");
    std::vector<int32_t> read;
    for (int64_t i = 0; i < file.num_sequences(); ++i) {
      touch(file.bytes(i));
      read.resize(static_cast<size_t>(file.length(i)));
      if (holds_tokens(file.dtype())) file.read(i, 0, read);
    }
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

// Input: an index.json, a zero byte, and the first shard that it names.
inline bool read_mds(std::span<const std::byte> bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view index = all.substr(0, all.find('\0'));
  try {
    const std::vector<MdsShardInfo> shards = parse_mds_index(index, "fuzz");
    if (parse_mds_index(mds_index_text(shards), "again").size() != shards.size()) std::abort();
    if (shards.empty() || index.size() == all.size()) return false;
    bytes = bytes.subspan(index.size() + 1);
    std::string unpacked;
    if (!shards[0].compression.empty()) {
      if (shards[0].raw.bytes > (uint64_t{1} << 20)) return false;
      unpacked = decompress(shards[0].compression, bytes, shards[0].raw.bytes, "fuzz");
      bytes = std::as_bytes(std::span(unpacked));
    }
    const MdsShard shard(bytes, shards[0], "fuzz");
    for (int64_t i = 0; i < shard.num_samples(); ++i) {
      const std::vector<std::string_view> values = shard.sample(i);
      for (size_t c = 0; c < values.size(); ++c) {
        touch(std::as_bytes(std::span(values[c])));
        check_mds_value(shards[0].columns[c].encoding, values[c]);
      }
    }
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return false;
  }
}

}  // namespace ingot::formats::fuzz

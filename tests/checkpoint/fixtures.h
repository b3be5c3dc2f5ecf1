// Shared by the checkpoint tests: temporary folders, golden models, and expected errors.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "checkpoint/load.h"
#include "formats/safetensors_set.h"
#include "tests/checkpoint/host_device.h"
#include "tests/locations.h"

namespace ingot::checkpoint {

namespace fs = std::filesystem;

inline fs::path golden(const std::string& name) { return fs::path(test_data) / "llama" / name; }

// A temporary folder of the running test, removed with its contents.
class Scratch {
 public:
  Scratch() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    path = fs::path(testing::TempDir()) /
           (std::string("ingot-") + test->test_suite_name() + "-" + test->name() + "-" + std::to_string(getpid()));
    fs::remove_all(path);
    fs::create_directories(path);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { fs::remove_all(path); }
  fs::path path;
};

// Runs `action`, which must throw an error of this kind whose message or hint contains all `words`.
inline void expect_error(ErrorKind kind, const std::vector<std::string>& words, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.message();
    for (const std::string& word : words) {
      EXPECT_NE((error.message() + " | " + error.hint()).find(word), std::string::npos)
          << "no '" << word << "' in: " << error.message() << " | " << error.hint();
    }
    return;
  }
  FAIL() << "no error";
}

inline void edit_json(const fs::path& path, const std::function<void(nlohmann::json&)>& edit) {
  nlohmann::json document = nlohmann::json::parse(read_file(path));
  edit(document);
  std::ofstream(path) << document.dump(2);
}

// A copy of a golden model's config.json and model.safetensors.
inline fs::path copy_model(const std::string& name, const fs::path& to) {
  fs::create_directories(to);
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(golden(name) / file, to / file, fs::copy_options::overwrite_existing);
  }
  return to;
}

// The values of an F32, BF16 or F16 entry, read element by element.
inline std::vector<float> values_of(const formats::TensorEntry& entry) {
  std::vector<float> values;
  if (entry.dtype == "F32") {
    values.resize(entry.bytes.size() / 4);
    std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
    return values;
  }
  for (size_t i = 0; i < entry.bytes.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, entry.bytes.data() + i, 2);
    values.push_back(entry.dtype == "BF16" ? bf16_to_float(bits) : f16_to_float(bits));
  }
  return values;
}

// The values of a loaded parameter in host memory.
inline std::vector<float> values_of(const Parameter& parameter) {
  const Tensor tensor = parameter.matrix ? parameter.matrix.tensor() : parameter.vector;
  std::vector<float> values;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (tensor.dtype == DType::f32) {
      values.push_back(tensor.as<float>()[i]);
    } else {
      const uint16_t bits = tensor.as<uint16_t>()[i];
      values.push_back(tensor.dtype == DType::bf16 ? bf16_to_float(bits) : f16_to_float(bits));
    }
  }
  return values;
}

// Rewrites tensors of a model folder: `edit` may change, drop or add declarations and their bytes.
struct EditedTensor {
  formats::TensorDeclaration declaration;
  std::vector<std::byte> bytes;
};
inline void rewrite_tensors(const fs::path& folder, const std::function<void(std::vector<EditedTensor>&)>& edit) {
  std::vector<EditedTensor> tensors;
  {
    const formats::SafetensorsFile file(folder / "model.safetensors");
    for (const formats::TensorEntry& entry : file.entries()) {
      tensors.push_back({{entry.name, entry.dtype, entry.shape}, {entry.bytes.begin(), entry.bytes.end()}});
    }
  }
  edit(tensors);
  std::vector<formats::TensorDeclaration> declarations;
  for (const EditedTensor& tensor : tensors) declarations.push_back(tensor.declaration);
  formats::SafetensorsWriter writer(folder / "model.safetensors", declarations);
  for (const formats::TensorDeclaration& declaration : writer.layout()) {
    for (const EditedTensor& tensor : tensors) {
      if (tensor.declaration.name == declaration.name) writer.write(declaration.name, tensor.bytes);
    }
  }
  writer.finish();
}

// Splits model.safetensors into shards of at most `limit` bytes with an index.
inline void shard_model(const fs::path& folder, uint64_t limit) {
  std::map<std::string, std::vector<std::byte>> data;
  std::vector<formats::TensorDeclaration> declarations;
  {
    const formats::SafetensorsFile file(folder / "model.safetensors");
    for (const formats::TensorEntry& entry : file.entries()) {
      declarations.push_back({entry.name, entry.dtype, entry.shape});
      data[entry.name].assign(entry.bytes.begin(), entry.bytes.end());
    }
  }
  const auto shards = formats::split_into_shards(declarations, limit);
  formats::SafetensorsIndex index;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string name =
        formats::safetensors_shard_name(static_cast<int64_t>(shard) + 1, static_cast<int64_t>(shards.size()));
    formats::SafetensorsWriter writer(folder / name, shards[shard]);
    for (const formats::TensorDeclaration& tensor : writer.layout()) {
      writer.write(tensor.name, data[tensor.name]);
      index.weight_map[tensor.name] = name;
      index.total_size += data[tensor.name].size();
    }
    writer.finish();
  }
  formats::write_safetensors_index(folder / "model.safetensors.index.json", index);
  fs::remove(folder / "model.safetensors");
}

}  // namespace ingot::checkpoint

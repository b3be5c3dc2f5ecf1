// Loads a model's weights from files into memory.
#pragma once

#include <string>

#include "base/file_watch.h"
#include "base/thread_pool.h"
#include "checkpoint/model_source.h"
#include "checkpoint/weight_storage.h"
#include "spec/model_shard.h"
#include "tensor/device.h"
#include "tensor/weight_set.h"

namespace ingot::checkpoint {

// The bytes of a parameter's form in memory, row after row, that are loaded, and where to: memory of
// LoadOptions::device.
struct KeptBytes {
  spec::Range bytes;
  std::byte* data = nullptr;
};

struct LoadOptions {
  Device& device;
  WeightStorage storage = {StorageType::f32};  // storage types of the matrices in memory
  bool writable = false;                       // the weights will be modified: none may point into a file
  ThreadPool* pool = nullptr;                  // null: converts on the calling thread
  // What to read; empty: the whole model. Nothing else of the files is read, except that rows in fp8 are read whole.
  std::vector<spec::ModelShard> shards = {};
  // If not empty, by index of the whole model's parameters: load_model writes these bytes of each and returns no
  // weights. Of the files only the rows that have them are read.
  std::vector<KeptBytes> kept = {};
};

struct LoadedModel {
  spec::ModelSpec spec;
  WeightSet weights;                       // by index of spec::parameters(spec); empty where not in options.shards
  std::string name;                        // the source's name
  std::string stored_dtype;                // the most common type of matrix elements in the file: "bf16", "q4_1"
  size_t copied_bytes = 0;                 // size of the one arena; all other weights point into the mapped files
  std::shared_ptr<const FileWatch> files;  // the mapped files; null when no weight points into them
};

// Vectors (norms, biases) become f32 whatever their type in the file. A tensor that already has the requested type is
// not copied when the device is host-visible and `writable` is false; all others go into one allocation of exactly the
// size needed. Row orders, transposed matrices and norm offsets of the file (placement.h) are converted to the layout
// of spec::parameters. With a tied head there is no output head parameter, and an output head in the file is not read.
// Errors: those of TensorStore and of the configuration; corrupt, naming the file, for one that is truncated or
// modified during loading; corrupt, naming tensor, found and expected shape and file, for a missing tensor, one that
// does not belong to the model, a wrong shape, and non-finite values; unsupported for a stored type that Ingot does not
// compute with, and for rows, or a tensor-parallel rank's part of them, that are not whole blocks of a type.
LoadedModel load_model(const ModelSource& source, const LoadOptions& options);

// The memory that load_model would use, computed without reading weights: bytes of its one arena, and bytes used in
// place from the mapped files.
struct WeightSizes {
  size_t copied = 0;
  size_t mapped = 0;
};
WeightSizes weight_sizes(const ModelSource& source, const LoadOptions& options);

// The parameters that load_model would load, as they would be in memory, in order.
std::vector<ParameterForm> parameter_forms(const ModelSource& source, const LoadOptions& options);
// The same of a model without files. ErrorKind::usage when options.storage leaves a type to the file.
std::vector<ParameterForm> parameter_forms(const spec::ModelSpec& model, const LoadOptions& options);
// Whether the source has weights, and not only a configuration.
bool has_weights(const ModelSource& source);

// Reads only the hyper-parameters: config.json, or GGUF metadata.
spec::ModelSpec read_model_spec(const ModelSource& source);

}  // namespace ingot::checkpoint

// A model's weights from files into memory.
#pragma once

#include <string>

#include "base/file_watch.h"
#include "base/thread_pool.h"
#include "checkpoint/kept_weights.h"
#include "checkpoint/model_source.h"
#include "spec/model.h"
#include "tensor/device.h"
#include "tensor/weight_set.h"

namespace ingot::checkpoint {

struct LoadOptions {
  Device& device;
  KeptWeights kept = {Storage::f32};  // what matrices become
  bool writable = false;              // the weights will be changed: nothing points into a file
  ThreadPool* pool = nullptr;         // null: converts on the calling thread
};

struct LoadedModel {
  spec::ModelSpec spec;
  WeightSet weights;                       // by index of spec::parameters(spec)
  std::string name;                        // of the source
  std::string stored_dtype;                // the type that most matrix elements have in the file: "bf16", "q4_1"
  size_t copied_bytes = 0;                 // of the one arena; the rest points into the mapped files
  std::shared_ptr<const FileWatch> files;  // these; null when nothing points into them
};

// Vectors (norms, biases) are f32 whatever the file has. A tensor whose type in the file is the wanted one is not
// copied when the device is host-visible and `writable` is false; everything else goes into one allocation of exactly
// the size needed. Rows, matrices and norms that the file has in another form (placement.h) are brought into that of
// spec::parameters. With a tied head there is no head parameter, and a head in the file is not read. Errors: those of
// TensorStore and of the configuration; corrupt, naming the file, for one that is cut short or written to meanwhile,
// and naming tensor, found and expected shape and file, for a missing tensor, one that does not belong to the model, a
// wrong shape, and values that are not finite; unsupported for a stored type that Ingot does not compute with, and for
// rows that are not whole blocks of the wanted type.
LoadedModel load_model(const ModelSource& source, const LoadOptions& options);

// What load_model would take, without reading weights: bytes of its one arena, and bytes left in the mapped files.
struct WeightSizes {
  size_t copied = 0;
  size_t mapped = 0;
};
WeightSizes weight_sizes(const ModelSource& source, const LoadOptions& options);

// The hyper-parameters alone: config.json, or GGUF metadata. Reads no weights.
spec::ModelSpec read_model_spec(const ModelSource& source);

}  // namespace ingot::checkpoint

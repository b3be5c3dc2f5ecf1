#include "checkpoint/load.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/row_codec.h"
#include "checkpoint/row_order.h"
#include "checkpoint/tensor_store.h"
#include "tensor/arena.h"

namespace ingot::checkpoint {

namespace {

constexpr size_t staging_bytes = size_t{16} << 20;  // host memory for a device that the host cannot write
constexpr int64_t slice_elements = 1 << 16;         // converted by one thread at a time

// One parameter on its way from the file to memory.
struct Move {
  const StoredTensor* from = nullptr;
  Storage to = Storage::f32;
  int64_t rows = 0;  // of the parameter; a vector with rotary heads has rows of one element
  int64_t in = 0;
  int64_t rope_heads = 0;  // not 0: rows are interleaved in the file
  std::byte* data = nullptr;
  bool mapped = false;

  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes(to, in); }
};

bool is_ignorable(const StoredTensor& tensor, const spec::ModelSpec& model, bool gguf) {
  const std::string& name = tensor.name;
  if (gguf) return name == "rope_freqs.weight";  // became the specification's rope scaling
  return name.ends_with("rotary_emb.inv_freq") || (model.tied_head && name == "lm_head.weight");
}

void check_no_others(const TensorStore& store, const spec::ModelSpec& model,
                     const std::vector<spec::ParamSpec>& table) {
  const bool gguf = store.gguf() != nullptr;
  std::set<std::string_view> known;
  for (const spec::ParamSpec& p : table) known.insert(gguf ? p.gguf_name : p.name);
  for (const StoredTensor& tensor : store.tensors()) {
    if (known.contains(tensor.name) || is_ignorable(tensor, model, gguf)) continue;
    throw_hint(ErrorKind::corrupt, "the configuration and the weights are not of the same model",
               "{}: tensor '{}', {}, does not belong to this {} model of {} layers", tensor.file, tensor.name,
               tensor.text(), model.family, model.layers);
  }
}

Move plan_move(const TensorStore& store, const spec::ParamSpec& p, const LoadOptions& options) {
  const bool gguf = store.gguf() != nullptr;
  const std::string& name = gguf ? p.gguf_name : p.name;
  const StoredTensor* tensor = store.find(name);
  if (tensor == nullptr) {
    throw_hint(ErrorKind::corrupt,
               p.role == spec::Role::head
                   ? "set tie_word_embeddings to true in config.json if the head is the embedding"
                   : "the file is incomplete or of another model; fetch it again",
               "{}: tensor '{}' {} is missing", store.path().string(), name, shape_text(p.shape));
  }
  if (tensor->shape != p.shape) {
    throw_hint(ErrorKind::corrupt, "the configuration and the weights are not of the same model",
               "{}: tensor '{}' has the shape {}, expected {}", tensor->file, name, shape_text(tensor->shape),
               shape_text(p.shape));
  }
  if (!tensor->storage) {
    throw_hint(ErrorKind::unsupported, "convert the file to one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K",
               "{}: tensor '{}' has the type {}, which Ingot does not compute with", tensor->file, name, tensor->dtype);
  }
  const bool matrix = p.shape.size() == 2;
  Move move;
  move.from = tensor;
  move.rope_heads = gguf ? p.rope_heads : 0;
  move.to = !matrix ? Storage::f32 : options.as_stored ? *tensor->storage : storage_of(options.compute);
  const bool single_rows = !matrix && move.rope_heads > 0;
  move.rows = matrix || single_rows ? p.shape[0] : 1;
  move.in = single_rows ? 1 : p.shape.back();
  const size_t unit = is_block(move.to) ? alignof(uint16_t) : block_bytes(move.to);
  const bool aligned = reinterpret_cast<uintptr_t>(tensor->bytes.data()) % unit == 0;
  move.mapped = *tensor->storage == move.to && move.rope_heads == 0 && aligned && !options.writable &&
                options.device.host_visible();
  if (move.mapped) move.data = const_cast<std::byte*>(tensor->bytes.data());
  return move;
}

// Writes rows [begin, end) of the parameter, converted, one after the other to `out`.
void convert_rows(const Move& move, int64_t begin, int64_t end, std::byte* out) {
  const Storage from = *move.from->storage;
  const size_t from_row = row_bytes(from, move.in);
  const size_t to_row = row_bytes(move.to, move.in);
  std::vector<float> values(from == move.to ? 0 : static_cast<size_t>(move.in));
  for (int64_t row = begin; row < end; ++row, out += to_row) {
    const int64_t stored = move.rope_heads > 0 ? gguf_row(row, move.rows / move.rope_heads) : row;
    const std::byte* source = move.from->bytes.data() + static_cast<size_t>(stored) * from_row;
    if (from == move.to) {
      std::memcpy(out, source, to_row);
    } else {
      decode_row(from, source, move.in, values.data());
      encode_row(move.to, values.data(), move.in, out);
    }
  }
}

void convert_parallel(const Move& move, int64_t begin, int64_t end, std::byte* out, ThreadPool* pool) {
  if (pool == nullptr) return convert_rows(move, begin, end, out);
  const size_t to_row = row_bytes(move.to, move.in);
  pool->parallel_for(begin, end, std::max<int64_t>(1, slice_elements / move.in), [&](int64_t lo, int64_t hi) {
    convert_rows(move, lo, hi, out + static_cast<size_t>(lo - begin) * to_row);
  });
}

void run_move(const Move& move, const LoadOptions& options) {
  if (options.device.host_visible()) return convert_parallel(move, 0, move.rows, move.data, options.pool);
  const size_t to_row = row_bytes(move.to, move.in);
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(staging_bytes / to_row));
  std::vector<std::byte> staging(static_cast<size_t>(std::min(step, move.rows)) * to_row);
  for (int64_t row = 0; row < move.rows; row += step) {
    const int64_t end = std::min(row + step, move.rows);
    convert_parallel(move, row, end, staging.data(), options.pool);
    options.device.copy_from_host(move.data + static_cast<size_t>(row) * to_row, staging.data(),
                                  static_cast<size_t>(end - row) * to_row);
  }
}

void check_finite(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.row_elements()));
  decode_row(*tensor.storage, tensor.bytes.data(), tensor.row_elements(), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    throw_hint(ErrorKind::corrupt, "the file is damaged, or the run that wrote it had diverged",
               "{}: element {} of tensor '{}' is {}", tensor.file, i, tensor.name, values[i]);
  }
}

std::string common_storage(const std::vector<Move>& moves) {
  std::map<Storage, int64_t> elements;
  for (const Move& move : moves) {
    if (move.rows > 1 || move.from->shape.size() == 2) elements[*move.from->storage] += move.rows * move.in;
  }
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? "" : ingot::name(most->first);
}

spec::ModelSpec read_hf_spec(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return parse_hf_config(read_file(path, uint64_t{1} << 26), path.string()).model;
}

}  // namespace

spec::ModelSpec read_model_spec(const ModelSource& source) {
  if (source.kind == SourceKind::hugging_face) return read_hf_spec(source.path);
  return gguf_model(TensorStore(source));
}

namespace {

// A model's parameters on their way, and what they will take.
struct Plan {
  spec::ModelSpec spec;
  std::vector<spec::ParamSpec> table;
  std::shared_ptr<const TensorStore> store;
  std::vector<Move> moves;
  WeightSizes sizes;
};

Plan plan_moves(const ModelSource& source, const LoadOptions& options) {
  Plan plan;
  if (source.kind == SourceKind::hugging_face) plan.spec = read_hf_spec(source.path);
  plan.store = std::make_shared<const TensorStore>(source);
  if (plan.store->gguf() != nullptr) plan.spec = gguf_model(*plan.store);
  plan.table = spec::parameters(plan.spec);
  check_no_others(*plan.store, plan.spec, plan.table);
  for (const spec::ParamSpec& p : plan.table) {
    plan.moves.push_back(plan_move(*plan.store, p, options));
    const Move& move = plan.moves.back();
    if (move.mapped) {
      plan.sizes.mapped += move.bytes();
    } else {
      plan.sizes.copied += Arena::footprint(move.bytes());
    }
  }
  return plan;
}

}  // namespace

WeightSizes weight_sizes(const ModelSource& source, const LoadOptions& options) {
  return plan_moves(source, options).sizes;
}

LoadedModel load_model(const ModelSource& source, const LoadOptions& options) {
  Plan plan = plan_moves(source, options);
  std::vector<Move>& moves = plan.moves;
  const std::vector<spec::ParamSpec>& table = plan.table;
  LoadedModel model;
  model.name = source.name;
  model.spec = plan.spec;
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].shape.size() == 1) check_finite(*moves[i].from);
  }

  if (plan.sizes.copied > 0) {
    const auto arena = std::make_shared<Arena>(options.device, plan.sizes.copied, "weights of " + source.name);
    for (Move& move : moves) {
      if (move.mapped) continue;
      move.data = static_cast<std::byte*>(arena->take_bytes(move.bytes()));
      run_move(move, options);
    }
    model.weights.owners.push_back(arena);
    model.copied_bytes = plan.sizes.copied;
  }
  if (plan.sizes.mapped > 0) model.weights.owners.push_back(plan.store);

  for (size_t i = 0; i < table.size(); ++i) {
    const Move& move = moves[i];
    Parameter parameter;
    if (table[i].shape.size() == 2) {
      parameter.matrix = Weight{move.to, move.data, move.rows, move.in, &options.device};
    } else {
      parameter.vector = Tensor{move.data, DType::f32, Shape{table[i].shape[0]}, &options.device};
    }
    model.weights.parameters.push_back(parameter);
  }
  model.stored_dtype = common_storage(moves);
  return model;
}

}  // namespace ingot::checkpoint

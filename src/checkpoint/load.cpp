#include "checkpoint/load.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/placement.h"
#include "checkpoint/row_codec.h"
#include "checkpoint/tensor_store.h"
#include "tensor/arena.h"
#include "tensor/staging.h"

namespace ingot::checkpoint {

namespace {

constexpr size_t staging_bytes = size_t{16} << 20;  // per buffer, for a device that the host cannot write
constexpr int64_t slice_elements = 1 << 16;         // per task of the thread pool

// The transfer of one parameter from the file to memory.
struct Transfer {
  const StoredTensor* from = nullptr;
  Placement placement;
  StorageType to = StorageType::f32;
  int64_t rows = 0;  // rows of the parameter; a vector whose elements are reordered counts as rows of one element
  int64_t in = 0;
  std::byte* data = nullptr;
  bool mapped = false;

  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes(to, in); }
  // The parameter's first row in the file; not for transposed parameters.
  const std::byte* source() const {
    return from->bytes.data() + static_cast<size_t>(placement.first_row) * row_bytes(*from->storage, in);
  }
};

std::vector<Placement> placements_of(const TensorStore& store, const spec::ModelSpec& model, const spec::ParamSpec& p) {
  return store.gguf() != nullptr ? gguf_placements(model, p) : hf_placements(model, p);
}

// Returns the tensor of the first placement that exists in the file.
const StoredTensor* find_tensor(const TensorStore& store, const std::vector<Placement>& placements, Placement& used) {
  for (const Placement& placement : placements) {
    const StoredTensor* tensor = store.find(placement.name);
    if (tensor == nullptr) continue;
    used = placement;
    return tensor;
  }
  return nullptr;
}

void check_no_others(const TensorStore& store, const spec::ModelSpec& model, const std::vector<Transfer>& transfers) {
  std::set<std::string_view> known;
  for (const Transfer& transfer : transfers) known.insert(transfer.from->name);
  for (const StoredTensor& tensor : store.tensors()) {
    if (known.contains(tensor.name) || is_ignorable(tensor.name, model, store.gguf() != nullptr)) continue;
    throw_hint(ErrorKind::corrupt, "check that the configuration and the weights are of the same model",
               "{}: tensor '{}', {}, does not belong to this {} model of {} layers", tensor.file, tensor.name,
               tensor.text(), model.family, model.num_layers());
  }
}

Transfer plan_transfer(const TensorStore& store, const spec::ModelSpec& model, const spec::ParamSpec& p,
                       const LoadOptions& options) {
  const std::vector<Placement> placements = placements_of(store, model, p);
  Transfer transfer;
  const StoredTensor* tensor = find_tensor(store, placements, transfer.placement);
  if (tensor == nullptr) {
    throw_hint(ErrorKind::corrupt,
               p.role == spec::Role::head
                   ? "set tie_word_embeddings to true in config.json if the head is the embedding"
                   : "the file is incomplete or of another model; fetch it again",
               "{}: tensor '{}' {} is missing", store.path().string(), placements.front().name,
               shape_text(placements.front().shape));
  }
  if (tensor->shape != transfer.placement.shape) {
    throw_hint(ErrorKind::corrupt, "check that the configuration and the weights are of the same model",
               "{}: tensor '{}' has the shape {}, expected {}", tensor->file, tensor->name, shape_text(tensor->shape),
               shape_text(transfer.placement.shape));
  }
  if (!tensor->storage) {
    throw_hint(ErrorKind::unsupported, "convert it to F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K or Q6_K",
               "{}: tensor '{}' has the type {}, which is not supported", tensor->file, tensor->name, tensor->dtype);
  }
  const bool matrix = p.shape.size() == 2;
  transfer.from = tensor;
  transfer.to = matrix ? options.storage.of(p, tensor->storage) : StorageType::f32;
  if (matrix && p.shape[1] % block_elements(transfer.to) != 0) {
    throw_hint(ErrorKind::unsupported, "keep the weights in bf16 or f16",
               "{}: tensor '{}': rows of {} elements are not a multiple of the {} block size {}", tensor->file,
               tensor->name, p.shape[1], ingot::name(transfer.to), block_elements(transfer.to));
  }
  const bool single_rows = !matrix && transfer.placement.order != RowOrder::same;
  transfer.rows = matrix || single_rows ? p.shape[0] : 1;
  transfer.in = single_rows ? 1 : p.shape.back();
  const size_t unit = !is_plain(transfer.to) ? alignof(uint16_t) : block_bytes(transfer.to);
  transfer.mapped = *tensor->storage == transfer.to && transfer.placement.plain() && !options.writable &&
                    options.device.host_visible() && reinterpret_cast<uintptr_t>(transfer.source()) % unit == 0;
  if (transfer.mapped) transfer.data = const_cast<std::byte*>(transfer.source());
  return transfer;
}

// Rows [begin, end) of a parameter that the file stores as [in, out]: the columns [begin, end) there.
void convert_columns(const Transfer& transfer, int64_t begin, int64_t end, std::byte* out) {
  const StorageType from = *transfer.from->storage;
  const auto columns = static_cast<size_t>(end - begin);
  std::vector<float> across(columns);
  std::vector<float> values(columns * static_cast<size_t>(transfer.in));
  for (int64_t i = 0; i < transfer.in; ++i) {
    const int64_t element = i * transfer.rows + begin;
    decode_row(from, transfer.from->bytes.data() + static_cast<size_t>(element) * block_bytes(from), end - begin,
               across.data());
    for (size_t c = 0; c < columns; ++c)
      values[c * static_cast<size_t>(transfer.in) + static_cast<size_t>(i)] = across[c];
  }
  for (size_t c = 0; c < columns; ++c) {
    encode_row(transfer.to, values.data() + c * static_cast<size_t>(transfer.in), transfer.in,
               out + c * row_bytes(transfer.to, transfer.in));
  }
}

// Writes rows [begin, end) of the parameter, converted, consecutively to `out`.
void convert_rows(const Transfer& transfer, int64_t begin, int64_t end, std::byte* out) {
  if (transfer.placement.transposed) return convert_columns(transfer, begin, end, out);
  const StorageType from = *transfer.from->storage;
  const size_t from_row = row_bytes(from, transfer.in);
  const size_t to_row = row_bytes(transfer.to, transfer.in);
  const auto offset = static_cast<float>(transfer.placement.offset);
  const bool same = from == transfer.to && offset == 0;
  std::vector<float> values(same ? 0 : static_cast<size_t>(transfer.in));
  for (int64_t row = begin; row < end; ++row, out += to_row) {
    const std::byte* source =
        transfer.source() + static_cast<size_t>(file_row(transfer.placement, transfer.rows, row)) * from_row;
    if (same) {
      std::memcpy(out, source, to_row);
      continue;
    }
    decode_row(from, source, transfer.in, values.data());
    for (float& value : values) value -= offset;
    encode_row(transfer.to, values.data(), transfer.in, out);
  }
}

void convert_parallel(const Transfer& transfer, int64_t begin, int64_t end, std::byte* out, ThreadPool* pool) {
  if (pool == nullptr) return convert_rows(transfer, begin, end, out);
  const size_t to_row = row_bytes(transfer.to, transfer.in);
  pool->parallel_for(begin, end, std::max<int64_t>(1, slice_elements / transfer.in), [&](int64_t lo, int64_t hi) {
    convert_rows(transfer, lo, hi, out + static_cast<size_t>(lo - begin) * to_row);
  });
}

// Writes to memory that the host cannot write: rows are read and converted while previous ones are uploaded.
void upload_rows(const Transfer& transfer, Uploader& uploader, ThreadPool* pool) {
  const size_t to_row = row_bytes(transfer.to, transfer.in);
  const int64_t step = static_cast<int64_t>(uploader.chunk_bytes() / to_row);
  for (int64_t row = 0; row < transfer.rows; row += step) {
    const int64_t end = std::min(row + step, transfer.rows);
    convert_parallel(transfer, row, end, uploader.next_chunk(), pool);
    uploader.send(transfer.data + static_cast<size_t>(row) * to_row, static_cast<size_t>(end - row) * to_row);
  }
}

// Transfers all parameters to their memory.
void run_transfers(const std::vector<Transfer>& transfers, const LoadOptions& options) {
  if (options.device.host_visible()) {
    for (const Transfer& transfer : transfers) {
      if (!transfer.mapped) convert_parallel(transfer, 0, transfer.rows, transfer.data, options.pool);
    }
    return;
  }
  size_t largest_row = 0;  // at least one row of each parameter
  size_t max_parameter_bytes = 0;
  for (const Transfer& transfer : transfers) {
    largest_row = std::max(largest_row, row_bytes(transfer.to, transfer.in));
    max_parameter_bytes = std::max(max_parameter_bytes, transfer.bytes());
  }
  Uploader uploader(options.device, std::max(largest_row, std::min(max_parameter_bytes, staging_bytes)));
  for (const Transfer& transfer : transfers) upload_rows(transfer, uploader, options.pool);
  uploader.finish();
}

// Non-finite values in a file would turn every result into NaN, with no hint of the cause.
void check_finite(const Transfer& transfer, ThreadPool* pool) {
  const StorageType storage = *transfer.from->storage;
  const int64_t in = transfer.placement.transposed ? transfer.rows : transfer.in;
  const int64_t rows = transfer.placement.transposed ? transfer.in : transfer.rows;
  const size_t bytes = row_bytes(storage, in);
  const std::byte* first = transfer.placement.transposed ? transfer.from->bytes.data() : transfer.source();
  const auto check = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const std::byte* data = first + static_cast<size_t>(row) * bytes;
      const int64_t at = find_non_finite(storage, data, in);
      if (at < 0) continue;
      throw_hint(ErrorKind::corrupt, "the file is damaged, or the run that wrote it had diverged",
                 "{}: tensor '{}' has a value that is not finite: element {} of row {}{}", transfer.from->file,
                 transfer.from->name, at, row + transfer.placement.first_row,
                 is_block(storage) ? " (from its block's scale)" : "");
    }
  };
  if (pool == nullptr) return check(0, rows);
  pool->parallel_for(0, rows, std::max<int64_t>(1, 4 * slice_elements / in), check);
}

std::string common_storage(const std::vector<Transfer>& transfers) {
  std::map<StorageType, int64_t> elements;
  for (const Transfer& transfer : transfers) {
    if (transfer.rows > 1 || transfer.from->shape.size() == 2)
      elements[*transfer.from->storage] += transfer.rows * transfer.in;
  }
  const auto largest = std::max_element(elements.begin(), elements.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == elements.end() ? "" : ingot::name(largest->first);
}

spec::ModelSpec read_hf_spec(const ModelSource& source) {
  const std::filesystem::path path = source.path / "config.json";
  return parse_hf_config(read_file(path, uint64_t{1} << 26), path.string()).model;
}

}  // namespace

spec::ModelSpec read_model_spec(const ModelSource& source) {
  if (source.kind == SourceKind::hugging_face) return read_hf_spec(source);
  return gguf_model(TensorStore(source));
}

namespace {

// The transfers of the wanted parameters, and their memory.
struct Plan {
  spec::ModelSpec spec;
  std::vector<spec::ParamSpec> table;
  std::shared_ptr<const TensorStore> store;
  std::vector<size_t> parameters;   // by transfer: its index in the table
  std::vector<Transfer> transfers;  // in the order of the table
  WeightSizes sizes;
};

// By index in the table.
std::vector<bool> wanted_parameters(const spec::ModelSpec& model, size_t count, const LoadOptions& options) {
  if (options.shards.empty()) return std::vector<bool>(count, true);
  std::vector<bool> wanted(count);
  for (const spec::ModelShard& shard : options.shards) {
    if (shard.tp > 1) throw_error(ErrorKind::unsupported, "weights cannot be read in tensor-parallel shards yet");
  }
  for (const spec::HeldParameter& p : spec::held_parameters(model, options.shards)) wanted[p.whole] = true;
  return wanted;
}

Plan plan_transfers(const ModelSource& source, const LoadOptions& options) {
  Plan plan;
  if (source.kind == SourceKind::hugging_face) plan.spec = read_hf_spec(source);
  plan.store = std::make_shared<const TensorStore>(source);
  if (plan.store->gguf() != nullptr) plan.spec = gguf_model(*plan.store);
  plan.table = spec::parameters(plan.spec);
  const std::vector<bool> wanted = wanted_parameters(plan.spec, plan.table.size(), options);
  std::vector<Transfer> all;  // a file that lacks any of them is refused
  for (const spec::ParamSpec& p : plan.table) all.push_back(plan_transfer(*plan.store, plan.spec, p, options));
  check_no_others(*plan.store, plan.spec, all);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!wanted[i]) continue;
    if (all[i].mapped) {
      plan.sizes.mapped += all[i].bytes();
    } else {
      plan.sizes.copied += Arena::footprint(all[i].bytes());
    }
    plan.parameters.push_back(i);
    plan.transfers.push_back(std::move(all[i]));
  }
  return plan;
}

}  // namespace

WeightSizes weight_sizes(const ModelSource& source, const LoadOptions& options) {
  return plan_transfers(source, options).sizes;
}

LoadedModel load_model(const ModelSource& source, const LoadOptions& options) {
  Plan plan = plan_transfers(source, options);
  std::vector<Transfer>& transfers = plan.transfers;
  const std::vector<spec::ParamSpec>& table = plan.table;
  LoadedModel model;
  model.name = source.name;
  model.spec = plan.spec;
  const std::shared_ptr<const FileWatch> files = plan.store->watch();
  for (const Transfer& transfer : transfers) check_finite(transfer, options.pool);

  if (plan.sizes.copied > 0) {
    const auto arena = std::make_shared<Arena>(options.device, plan.sizes.copied, "weights of " + source.name);
    for (Transfer& transfer : transfers) {
      if (transfer.mapped) continue;
      transfer.data = static_cast<std::byte*>(arena->allocate_bytes(transfer.bytes()));
    }
    run_transfers(transfers, options);
    model.weights.owners.push_back(arena);
    model.copied_bytes = plan.sizes.copied;
  }
  if (const std::optional<FileFault> fault = files->fault()) {
    throw_hint(ErrorKind::corrupt, "restart once the file is complete", "{}: changed while it was being read: {}",
               fault->file.string(), fault->what);
  }
  if (plan.sizes.mapped > 0) {
    model.weights.owners.push_back(plan.store);
    model.files = files;
  }

  model.weights.parameters.resize(table.size());
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    const spec::ParamSpec& p = table[plan.parameters[i]];
    Parameter& parameter = model.weights.parameters[plan.parameters[i]];
    if (p.shape.size() == 2) {
      parameter.matrix = Weight{transfer.to, transfer.data, transfer.rows, transfer.in, &options.device};
    } else {
      parameter.vector = Tensor{transfer.data, DType::f32, Shape{p.shape[0]}, &options.device};
    }
  }
  model.stored_dtype = common_storage(transfers);
  return model;
}

}  // namespace ingot::checkpoint

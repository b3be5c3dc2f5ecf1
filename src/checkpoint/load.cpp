#include "checkpoint/load.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/placement.h"
#include "checkpoint/row_codec.h"
#include "checkpoint/tensor_store.h"
#include "tensor/arena.h"
#include "tensor/fp8.h"
#include "tensor/staging.h"

namespace ingot::checkpoint {

namespace {

constexpr size_t upload_staging_bytes = size_t{16} << 20;  // per buffer, for a device that the host cannot write
constexpr int64_t slice_elements = 1 << 16;                // per task of the thread pool

// Bytes of `elements` of a row, whole blocks.
size_t bytes_of(StorageType type, int64_t elements) {
  return static_cast<size_t>(elements / block_elements(type)) * block_bytes(type);
}

// The transfer of one parameter, or of the slice of it that is wanted, from the file to memory.
struct Transfer {
  const StoredTensor* from = nullptr;
  Placement placement;
  StorageType to = StorageType::f32;
  int64_t whole_rows = 0;  // of the parameter; a vector that is reordered or cut counts as rows of one element
  int64_t whole_in = 0;
  spec::Slice slice;
  std::byte* data = nullptr;
  bool mapped = false;
  // Bytes [skipped, skipped + bytes()) of the slice's rows are written to `data`.
  size_t skipped = 0;
  std::optional<size_t> kept;

  // Of the slice.
  int64_t rows() const { return slice.num_rows(); }
  int64_t in() const { return slice.columns.count(); }
  size_t to_row() const { return row_bytes(to, in()); }
  size_t bytes() const { return kept.value_or(static_cast<size_t>(rows()) * to_row()); }
  // Leaves these bytes of the slice, and of its rows those that have them.
  void keep(const spec::Range& bytes) {
    const auto width = static_cast<int64_t>(to_row());
    const int64_t first = bytes.begin / width, last = (bytes.end + width - 1) / width;
    spec::Slice narrow{{}, slice.columns};
    spec::for_rows(slice, first, last, [&](const spec::Range& rows) { narrow.rows.push_back(rows); });
    slice = std::move(narrow);
    skipped = static_cast<size_t>(bytes.begin - first * width);
    kept = static_cast<size_t>(bytes.count());
  }
  // The columns whose values are read to write the slice's: all of them where they have one scale.
  spec::Range encoded_columns() const { return is_fp8(to) ? spec::Range{0, whole_in} : slice.columns; }
  int64_t encoded_in() const { return encoded_columns().count(); }
  // The elements of row `row` of the parameter from `column` on; not for transposed parameters.
  const std::byte* source(int64_t row, int64_t column) const {
    const auto index = static_cast<size_t>(placement.first_row + file_row(placement, whole_rows, row));
    return from->bytes.data() + index * row_bytes(*from->storage, whole_in) + bytes_of(*from->storage, column);
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

// A rank's columns of a matrix whose rows are stored in blocks are whole blocks, or refused.
void check_blocks(const Transfer& transfer, StorageType type) {
  const int64_t block = block_elements(type);
  const spec::Range& columns = transfer.slice.columns;
  if (columns.begin % block == 0 && columns.end % block == 0) return;
  throw_hint(ErrorKind::unsupported, "use another storage type (weights), or divide the model by pp",
             "{}: tensor '{}': tp cuts its rows of {} elements at elements {} and {}, inside blocks of {} ({})",
             transfer.from->file, transfer.from->name, transfer.whole_in, columns.begin, columns.end, block,
             ingot::name(type));
}

// `held`: the part that is wanted; null: all.
Transfer plan_transfer(const TensorStore& store, const spec::ModelSpec& model, const spec::ParamSpec& p,
                       const spec::HeldParameter* held, const LoadOptions& options) {
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
  const bool cut = held != nullptr && held->placement == spec::TensorPlacement::sharded;
  const bool single_rows = !matrix && (cut || transfer.placement.order != RowOrder::same);
  transfer.whole_rows = matrix || single_rows ? p.shape[0] : 1;
  transfer.whole_in = single_rows ? 1 : p.shape.back();
  transfer.slice = cut ? held->slice : spec::whole_slice(transfer.whole_rows, transfer.whole_in);
  if (cut) {
    check_blocks(transfer, *tensor->storage);
    check_blocks(transfer, transfer.to);
  }
  if (!options.kept.empty()) return transfer;  // into the caller's memory
  const bool consecutive = transfer.slice.rows.size() == 1 && transfer.in() == transfer.whole_in;
  const size_t unit = !is_plain(transfer.to) ? alignof(uint16_t) : block_bytes(transfer.to);
  if (*tensor->storage == transfer.to && transfer.placement.plain() && consecutive && !options.writable &&
      options.device.host_visible()) {
    const std::byte* source = transfer.source(transfer.slice.rows.front().begin, 0);
    transfer.mapped = reinterpret_cast<uintptr_t>(source) % unit == 0;
    if (transfer.mapped) transfer.data = const_cast<std::byte*>(source);
  }
  return transfer;
}

// Writes the slice's elements of a row, whose values are `values`: the slice's or, in fp8, the whole row's, whose scale
// its parts have too, so that elements do not depend on how the matrix is cut.
void encode_part(const Transfer& transfer, const float* values, std::byte* out) {
  if (transfer.encoded_in() == transfer.in()) return encode_row(transfer.to, values, transfer.in(), out);
  std::vector<std::byte> row(row_bytes(transfer.to, transfer.whole_in));
  encode_row(transfer.to, values, transfer.whole_in, row.data());
  const size_t own_scale = fp8_scale_offset(transfer.in()), scale = fp8_scale_offset(transfer.whole_in);
  std::memset(out, 0, own_scale);
  std::memcpy(out, row.data() + transfer.slice.columns.begin, static_cast<size_t>(transfer.in()));
  std::memcpy(out + own_scale, row.data() + scale, row.size() - scale);
}

// Rows [begin, end) of a parameter that the file stores as [in, out]: the columns [begin, end) there.
void convert_columns(const Transfer& transfer, int64_t begin, int64_t end, std::byte* out) {
  const StorageType from = *transfer.from->storage;
  const spec::Range inputs = transfer.encoded_columns();
  const auto columns = static_cast<size_t>(end - begin), in = static_cast<size_t>(inputs.count());
  std::vector<float> across(columns);
  std::vector<float> values(columns * in);
  for (size_t i = 0; i < in; ++i) {
    const int64_t element = (inputs.begin + static_cast<int64_t>(i)) * transfer.whole_rows + begin;
    decode_row(from, transfer.from->bytes.data() + static_cast<size_t>(element) * block_bytes(from), end - begin,
               across.data());
    for (size_t c = 0; c < columns; ++c) values[c * in + i] = across[c];
  }
  for (size_t c = 0; c < columns; ++c) {
    encode_part(transfer, values.data() + c * in, out + c * row_bytes(transfer.to, transfer.in()));
  }
}

// Writes rows [begin, end) of the parameter, converted, consecutively to `out`.
void convert_rows(const Transfer& transfer, int64_t begin, int64_t end, std::byte* out) {
  if (transfer.placement.transposed) return convert_columns(transfer, begin, end, out);
  const StorageType from = *transfer.from->storage;
  const size_t to_row = row_bytes(transfer.to, transfer.in());
  const auto offset = static_cast<float>(transfer.placement.offset);
  const bool same = from == transfer.to && offset == 0;
  const spec::Range inputs = transfer.encoded_columns();
  std::vector<float> values(same ? 0 : static_cast<size_t>(inputs.count()));
  for (int64_t row = begin; row < end; ++row, out += to_row) {
    const std::byte* source = transfer.source(row, inputs.begin);
    if (same) {
      std::memcpy(out, source, to_row);
      continue;
    }
    decode_row(from, source, inputs.count(), values.data());
    for (float& value : values) value -= offset;
    encode_part(transfer, values.data(), out);
  }
}

// Rows [begin, end) of the slice, to `out`.
void convert_parallel(const Transfer& transfer, int64_t begin, int64_t end, std::byte* out, ThreadPool* pool) {
  const size_t to_row = row_bytes(transfer.to, transfer.in());
  const auto convert = [&](int64_t lo, int64_t hi) {
    std::byte* to = out + static_cast<size_t>(lo - begin) * to_row;
    spec::for_rows(transfer.slice, lo, hi, [&](const spec::Range& rows) {
      convert_rows(transfer, rows.begin, rows.end, to);
      to += static_cast<size_t>(rows.count()) * to_row;
    });
  };
  if (pool == nullptr) return convert(begin, end);
  pool->parallel_for(begin, end, std::max<int64_t>(1, slice_elements / transfer.in()), convert);
}

// Writes the kept bytes of the slice to memory that the host can write.
void write_rows(const Transfer& transfer, ThreadPool* pool) {
  const size_t to_row = transfer.to_row();
  if (transfer.bytes() == static_cast<size_t>(transfer.rows()) * to_row)
    return convert_parallel(transfer, 0, transfer.rows(), transfer.data, pool);
  // The first and the last row, of which a part may be kept, are converted apart.
  const size_t end = transfer.skipped + transfer.bytes();
  std::vector<std::byte> row(to_row);
  const auto write_part = [&](int64_t at) {
    const size_t first = static_cast<size_t>(at) * to_row;
    const size_t from = std::max(first, transfer.skipped), to = std::min(first + to_row, end);
    convert_parallel(transfer, at, at + 1, row.data(), nullptr);
    std::memcpy(transfer.data + (from - transfer.skipped), row.data() + (from - first), to - from);
  };
  write_part(0);
  if (transfer.rows() == 1) return;
  write_part(transfer.rows() - 1);
  convert_parallel(transfer, 1, transfer.rows() - 1, transfer.data + (to_row - transfer.skipped), pool);
}

// Writes to memory that the host cannot write: rows are read and converted while previous ones are uploaded.
void upload_rows(const Transfer& transfer, Uploader& uploader, ThreadPool* pool) {
  const size_t to_row = transfer.to_row(), kept_end = transfer.skipped + transfer.bytes();
  const int64_t step = static_cast<int64_t>(uploader.chunk_bytes() / to_row);
  for (int64_t row = 0; row < transfer.rows(); row += step) {
    const int64_t end = std::min(row + step, transfer.rows());
    convert_parallel(transfer, row, end, uploader.next_chunk(), pool);
    const size_t first = static_cast<size_t>(row) * to_row;
    const size_t from = std::max(first, transfer.skipped), to = std::min(static_cast<size_t>(end) * to_row, kept_end);
    uploader.send(transfer.data + (from - transfer.skipped), to - from, from - first);
  }
}

// Transfers all parameters to their memory.
void run_transfers(const std::vector<Transfer>& transfers, const LoadOptions& options) {
  if (options.device.host_visible()) {
    for (const Transfer& transfer : transfers) {
      if (!transfer.mapped) write_rows(transfer, options.pool);
    }
    return;
  }
  size_t largest_row = 0;  // at least one row of each parameter
  size_t max_parameter_bytes = 0;
  for (const Transfer& transfer : transfers) {
    largest_row = std::max(largest_row, transfer.to_row());
    max_parameter_bytes = std::max(max_parameter_bytes, transfer.bytes());
  }
  Uploader uploader(options.device, std::max(largest_row, std::min(max_parameter_bytes, upload_staging_bytes)));
  for (const Transfer& transfer : transfers) upload_rows(transfer, uploader, options.pool);
  uploader.finish();
}

// Non-finite values in a file would turn every result into NaN, with no hint of the cause.
void check_finite(const Transfer& transfer, ThreadPool* pool) {
  const StorageType storage = *transfer.from->storage;
  const bool transposed = transfer.placement.transposed;
  // `data`: elements [first, first + count) of row `row` of the file's tensor.
  const auto check = [&](const std::byte* data, int64_t row, int64_t first, int64_t count) {
    const int64_t at = find_non_finite(storage, data, count);
    if (at < 0) return;
    throw_hint(ErrorKind::corrupt, "the file is damaged, or the run that wrote it had diverged",
               "{}: tensor '{}' has a value that is not finite: element {} of row {}{}", transfer.from->file,
               transfer.from->name, first + at, row, is_block(storage) ? " (from its block's scale)" : "");
  };
  const spec::Range& columns = transfer.slice.columns;
  const auto check_rows = [&](int64_t begin, int64_t end) {
    spec::for_rows(transfer.slice, begin, end, [&](const spec::Range& rows) {
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const int64_t in_file = transfer.placement.first_row + file_row(transfer.placement, transfer.whole_rows, row);
        check(transfer.source(row, columns.begin), in_file, columns.begin, columns.count());
      }
    });
  };
  const auto check_transposed = [&](int64_t begin, int64_t end) {
    for (int64_t row = columns.begin + begin; row < columns.begin + end; ++row) {
      for (const spec::Range& part : transfer.slice.rows) {
        const auto element = static_cast<size_t>(row * transfer.whole_rows + part.begin);
        check(transfer.from->bytes.data() + element * block_bytes(storage), row, part.begin, part.count());
      }
    }
  };
  const FunctionRef<void(int64_t, int64_t)> run =
      transposed ? FunctionRef<void(int64_t, int64_t)>(check_transposed) : check_rows;
  const int64_t rows = transposed ? transfer.in() : transfer.rows();
  if (pool == nullptr) return run(0, rows);
  const int64_t each = transposed ? transfer.rows() : transfer.in();
  pool->parallel_for(0, rows, std::max<int64_t>(1, 4 * slice_elements / each), run);
}

std::string common_storage(const std::vector<Transfer>& transfers) {
  std::map<StorageType, int64_t> elements;
  for (const Transfer& transfer : transfers) {
    if (transfer.whole_rows > 1 || transfer.from->shape.size() == 2)
      elements[*transfer.from->storage] += transfer.rows() * transfer.in();
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

  ParameterForm form(size_t transfer) const {
    const Transfer& t = transfers[transfer];
    const size_t number = parameters[transfer];
    const bool matrix = table[number].shape.size() == 2;
    return {number, t.to, matrix ? Shape{t.rows(), t.in()} : Shape{t.rows() * t.in()}};
  }
};

Plan plan_transfers(const ModelSource& source, const LoadOptions& options) {
  Plan plan;
  if (source.kind == SourceKind::hugging_face) plan.spec = read_hf_spec(source);
  plan.store = std::make_shared<const TensorStore>(source);
  if (plan.store->gguf() != nullptr) plan.spec = gguf_model(*plan.store);
  plan.table = spec::parameters(plan.spec);
  const std::vector<spec::ModelShard> whole(1);
  const std::vector<spec::HeldParameter> held =
      spec::held_parameters(plan.spec, options.shards.empty() ? whole : options.shards);
  std::vector<const spec::HeldParameter*> wanted(plan.table.size());  // null where it is not
  for (const spec::HeldParameter& p : held) wanted[p.whole] = &p;
  std::vector<Transfer> all;  // a file that lacks any of them is refused
  for (size_t i = 0; i < plan.table.size(); ++i)
    all.push_back(plan_transfer(*plan.store, plan.spec, plan.table[i], wanted[i], options));
  check_no_others(*plan.store, plan.spec, all);
  for (size_t i = 0; i < all.size(); ++i) {
    if (wanted[i] == nullptr) continue;
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

std::vector<ParameterForm> parameter_forms(const ModelSource& source, const LoadOptions& options) {
  const Plan plan = plan_transfers(source, options);
  std::vector<ParameterForm> forms;
  for (size_t i = 0; i < plan.transfers.size(); ++i) forms.push_back(plan.form(i));
  return forms;
}

std::vector<ParameterForm> parameter_forms(const spec::ModelSpec& model, const LoadOptions& options) {
  if (!options.storage.matrices) {
    throw_hint(ErrorKind::usage, "give the model's files, or another type of weights",
               "the types of stored weights are not known without their files");
  }
  const std::vector<spec::ModelShard> whole(1);
  std::vector<ParameterForm> forms;
  for (const spec::HeldParameter& p : spec::held_parameters(model, options.shards.empty() ? whole : options.shards)) {
    const bool matrix = p.held.shape.size() == 2;
    forms.push_back({p.whole, matrix ? options.storage.of(p.held) : StorageType::f32, Shape(p.held.shape)});
  }
  return forms;
}

bool has_weights(const ModelSource& source) {
  return source.kind != SourceKind::hugging_face || path_exists(source.path / "model.safetensors") ||
         path_exists(source.path / "model.safetensors.index.json");
}

LoadedModel load_model(const ModelSource& source, const LoadOptions& options) {
  Plan plan = plan_transfers(source, options);
  std::vector<Transfer>& transfers = plan.transfers;
  LoadedModel model;
  model.name = source.name;
  model.spec = plan.spec;
  model.stored_dtype = common_storage(transfers);
  const std::shared_ptr<const FileWatch> files = plan.store->watch();
  std::vector<ParameterForm> forms;
  for (size_t i = 0; i < transfers.size(); ++i) {
    forms.push_back(plan.form(i));
    if (options.kept.empty()) continue;
    const auto& [bytes, data] = options.kept[forms[i].number];
    transfers[i].keep(bytes);
    transfers[i].data = data;
  }
  std::erase_if(transfers, [](const Transfer& transfer) { return transfer.kept == size_t{0}; });
  for (const Transfer& transfer : transfers) check_finite(transfer, options.pool);

  if (!options.kept.empty()) {
    run_transfers(transfers, options);
  } else if (plan.sizes.copied > 0) {
    const auto arena = std::make_shared<Arena>(options.device, plan.sizes.copied, "weights of " + source.name);
    // Matrices first, so that no bias lies between those of layers with the same input (ops/linear_group.h). Weights
    // that are modified keep the order of parameters, in which ranks gather them (train/weight_run.h).
    for (const bool first : {true, false}) {
      for (size_t i = 0; i < transfers.size(); ++i) {
        Transfer& transfer = transfers[i];
        if (transfer.mapped || (options.writable || forms[i].shape.rank() == 2) != first) continue;
        transfer.data = static_cast<std::byte*>(arena->allocate_bytes(transfer.bytes()));
      }
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

  model.weights.parameters.resize(plan.table.size());
  for (size_t i = 0; i < transfers.size() && options.kept.empty(); ++i)
    model.weights.parameters[forms[i].number] = forms[i].at(transfers[i].data, options.device);
  return model;
}

}  // namespace ingot::checkpoint

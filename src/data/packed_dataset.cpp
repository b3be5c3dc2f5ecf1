#include "data/packed_dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/file_version.h"
#include "base/json.h"
#include "base/mutex.h"
#include "base/threads.h"
#include "formats/npy_dtype.h"
#include "storage/fetch.h"
#include "storage/uri.h"

namespace ingot::data {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* packing_file = "packing.json";
constexpr size_t max_open = 16;    // shards
constexpr int num_fetchers = 4;    // threads
constexpr size_t max_wanted = 64;  // shards waiting to be fetched

// The counts in packing.json, for writing and reading.
constexpr std::array counts = {
    std::pair{"files", &DatasetStatistics::num_files},
    std::pair{"documents", &DatasetStatistics::num_documents},
    std::pair{"bad_lines", &DatasetStatistics::num_bad_lines},
    std::pair{"entries", &DatasetStatistics::num_entries},
    std::pair{"truncated", &DatasetStatistics::num_truncated},
    std::pair{"too_long", &DatasetStatistics::num_too_long},
    std::pair{"without_target", &DatasetStatistics::num_without_loss_tokens},
    std::pair{"sequences", &DatasetStatistics::num_sequences},
    std::pair{"tokens", &DatasetStatistics::num_tokens},
    std::pair{"counted", &DatasetStatistics::num_loss_tokens},
};

std::string below(const fs::path& folder, const char* name) {
  return is_remote(folder.string()) ? uri_below(folder.string(), name) : (folder / name).string();
}

template <class T>
std::string array_value(const formats::MdsColumn& column, const char* dtype, std::span<const T> values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return formats::mds_array_value(column.encoding, {dtype, {std::ssize(values)}, bytes});
}

const std::vector<formats::MdsColumn>& columns() {
  static const std::vector<formats::MdsColumn> all = {{"counted", formats::parse_mds_encoding("ndarray:uint8")},
                                                      {"documents", formats::parse_mds_encoding("ndarray:int64")},
                                                      {"offsets", formats::parse_mds_encoding("ndarray:int32")},
                                                      {"tokens", formats::parse_mds_encoding("ndarray:int32")}};
  return all;
}

Json parse_packing(const fs::path& folder) {
  const std::string path = below(folder, packing_file), name = shown(path);
  constexpr uint64_t max_packing_bytes = 1 << 20;
  Json packing;
  try {
    packing =
        parse_json_object(is_remote(path) ? fetch_text(path, max_packing_bytes) : read_file(path, max_packing_bytes));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::corrupt) throw;
    throw_error(ErrorKind::corrupt, "{}: {}", name, error.message());
  }
  require_known_version(name, packing, packed_data_format);
  const auto is_count = [&](const char* key) {
    const auto found = packing.find(key);
    return found != packing.end() && found->is_number_unsigned() && std::in_range<int64_t>(found->get<uint64_t>());
  };
  std::vector<const char*> keys = {"sequence_length", "vocabulary", "longest"};
  for (const auto& [key, member] : counts) keys.push_back(key);
  for (const char* key : keys) {
    if (!is_count(key)) throw_error(ErrorKind::corrupt, "{}: \"{}\" is not a whole number", name, key);
  }
  if (!packing["squared_lengths"].is_number() || !packing["content_hash"].is_string()) {
    throw_error(ErrorKind::corrupt, "{}: lacks \"squared_lengths\" or \"content_hash\"", name);
  }
  return packing;
}

// The values of one column of a sample. Errors: corrupt, without saying where.
std::vector<int64_t> numbers(size_t column, std::string_view value) {
  const formats::MdsArray array = formats::read_mds_array(columns()[column].encoding, value);
  if (array.shape.size() != 1)
    throw_error(ErrorKind::corrupt, "{} has {} dimensions", columns()[column].name, array.shape.size());
  return formats::npy_integers(array.dtype, array.bytes);
}

PackedSequence parse_sequence(const std::vector<std::string_view>& values, int64_t length, int64_t vocabulary) {
  const std::vector<int64_t> loss_mask = numbers(0, values[0]), documents = numbers(1, values[1]),
                             offsets = numbers(2, values[2]), tokens = numbers(3, values[3]);
  if (std::ssize(tokens) != length || loss_mask.size() != tokens.size() || offsets.size() != documents.size() + 1 ||
      offsets.front() != 0 || offsets.back() != length ||
      std::adjacent_find(offsets.begin(), offsets.end(), std::greater_equal<>()) != offsets.end()) {
    throw_error(ErrorKind::corrupt, "it is not a packed sequence of {} tokens", length);
  }
  PackedSequence sequence;
  for (const int64_t token : tokens) {
    if (token < 0 || token >= vocabulary) {
      throw_hint(ErrorKind::corrupt, "pack the data with the model's tokenizer",
                 "token {} is not in the vocabulary of {}", token, vocabulary);
    }
    sequence.ids.push_back(static_cast<int32_t>(token));
  }
  sequence.offsets.assign(offsets.begin(), offsets.end());
  sequence.sample_ids = documents;
  sequence.targets.assign(tokens.size(), -1);
  for (size_t j = 0; j + 1 < sequence.offsets.size(); ++j) {
    for (auto i = static_cast<size_t>(offsets[j]); i < static_cast<size_t>(offsets[j + 1]); ++i) {
      if (loss_mask[i] == 0) continue;
      if (i + 1 == static_cast<size_t>(offsets[j + 1])) {
        throw_error(ErrorKind::corrupt, "the loss mask includes the last token of a document, which has no target");
      }
      sequence.targets[i] = sequence.ids[i + 1];
      ++sequence.loss_tokens;
    }
  }
  return sequence;
}

}  // namespace

void write_packed(const Dataset& dataset, int64_t vocabulary, const fs::path& folder,
                  const formats::MdsWriterSettings& settings, const std::function<bool(int64_t)>& go_on) {
  formats::MdsWriter writer(folder, columns(), settings);
  std::vector<uint8_t> loss_mask;
  for (int64_t i = 0; i < dataset.num_sequences(); ++i) {
    const PackedSequence sequence = dataset.get(i);
    loss_mask.clear();
    for (const int32_t target : sequence.targets) loss_mask.push_back(target >= 0 ? 1 : 0);
    const std::array<std::string, 4> values = {array_value<uint8_t>(columns()[0], "u1", loss_mask),
                                               array_value<int64_t>(columns()[1], "i8", sequence.sample_ids),
                                               array_value<int32_t>(columns()[2], "i4", sequence.offsets),
                                               array_value<int32_t>(columns()[3], "i4", sequence.ids)};
    writer.write(std::array<std::string_view, 4>{values[0], values[1], values[2], values[3]});
    if (!go_on(i + 1))
      throw_hint(ErrorKind::unavailable, "remove the folder and start over", "{}: stopped", folder.string());
  }
  const DatasetStatistics& s = dataset.statistics();
  Json packing = {{"version", packed_data_format.newest},
                  {"sequence_length", dataset.sequence_length()},
                  {"vocabulary", vocabulary}};
  for (const auto& [key, member] : counts) packing[key] = s.*member;
  packing["longest"] = s.longest;
  packing["squared_lengths"] = s.squared_lengths;
  packing["content_hash"] = dataset.content_hash();
  write_file(folder / packing_file, packing.dump(1) + "\n");  // without the index, written last, this is no data set
  writer.finish();
}

bool is_packed(const fs::path& path) { return is_mds_folder(path) && input_exists(below(path, packing_file)); }

// Fetches remote shards into the cache and keeps the most recently used shards open.
struct PackedDataset::Shards {
  using Key = std::pair<size_t, size_t>;  // folder, shard
  struct Opened {
    std::deque<std::pair<Key, std::shared_ptr<const formats::MdsShard>>> shards;  // most recently used last
  };
  struct Wanted {
    std::deque<Key> waiting;
    std::set<Key> seen;  // waiting or fetched
    bool stop = false;
    std::exception_ptr failure;  // error that ended a fetch thread
  };

  explicit Shards(const std::vector<formats::MdsFolder>& its_folders) : folders(its_folders) {
    const bool remote = std::any_of(folders.begin(), folders.end(), [](const auto& folder) { return folder.remote(); });
    const auto fetch = [this] {
      try {
        fetch_all();
      } catch (...) {
        wanted.lock()->failure = std::current_exception();
      }
    };
    try {
      threads.reserve(num_fetchers);
      for (int i = 0; remote && i < num_fetchers; ++i) threads.push_back(start_thread("fetching shards", fetch));
    } catch (...) {
      end();
      throw;
    }
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;
  ~Shards() { end(); }

  void end() {
    stopping = true;
    wanted.lock()->stop = true;
    wanted.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // Errors: as MdsFolder::open; an error that ended a fetch thread.
  std::shared_ptr<const formats::MdsShard> get(const Key& key) {
    if (const std::exception_ptr failure = wanted.lock()->failure) std::rethrow_exception(failure);
    {
      auto held = opened.lock();
      const auto found =
          std::find_if(held->shards.begin(), held->shards.end(), [&](const auto& each) { return each.first == key; });
      if (found != held->shards.end()) {
        std::rotate(found, found + 1, held->shards.end());
        return held->shards.back().second;
      }
    }
    auto shard = std::make_shared<const formats::MdsShard>(folders[key.first].open(key.second));
    auto held = opened.lock();
    held->shards.emplace_back(key, shard);
    if (held->shards.size() > max_open) held->shards.pop_front();
    return shard;
  }

  void expect(const Key& key) {
    auto held = wanted.lock();
    if (threads.empty() || held->waiting.size() >= max_wanted || !held->seen.insert(key).second) return;
    held->waiting.push_back(key);
    wanted.notify_one();
  }

  void fetch_all() {
    FileCache cache(FileCache::from_environment());
    cache.go_on_while([this] { return !stopping; });
    for (;;) {
      Key key;
      {
        auto held = wanted.lock();
        held.wait([](const Wanted& w) { return w.stop || !w.waiting.empty(); });
        if (held->stop) return;
        key = held->waiting.front();
        held->waiting.pop_front();
      }
      try {
        if (folders[key.first].remote()) cache.get(folders[key.first].remote_file(key.second));
      } catch (const Error&) {
        // get() will retry and report the error; expect() may also request it again.
        wanted.lock()->seen.erase(key);
      }
      // Shards fetched long ago may have been evicted from the cache: allows them to be expected again.
      auto held = wanted.lock();
      if (held->seen.size() > 4 * max_wanted) held->seen.clear();
    }
  }

  const std::vector<formats::MdsFolder>& folders;
  Guarded<Opened> opened;
  Guarded<Wanted> wanted;
  std::atomic<bool> stopping = false;
  std::vector<std::thread> threads;
};

PackedDataset::PackedDataset(std::span<const Source> sources, int64_t sequence_length, int64_t vocabulary)
    : sequence_length_(sequence_length), vocabulary_(vocabulary) {
  if (sources.empty()) throw_error(ErrorKind::usage, "no data file is given");
  Sha256 digest;
  for (const Source& source : sources) {
    const std::string name = shown(source.path.string());
    if (!(source.weight >= 1) || source.weight != std::floor(source.weight) || source.weight > 1e6) {
      throw_hint(ErrorKind::usage, "give a whole number, or set the weights before packing",
                 "{}: packed data cannot have the weight {}", name, source.weight);
    }
    const Json packing = parse_packing(source.path);
    if (packing["sequence_length"] != sequence_length) {
      throw_hint(ErrorKind::usage, fmt::format("set data.sequence_length: {}", packing["sequence_length"].dump()),
                 "{}: is packed in sequences of {} tokens, not of {}", name, packing["sequence_length"].dump(),
                 sequence_length);
    }
    if (packing["vocabulary"].get<int64_t>() > vocabulary) {
      throw_hint(ErrorKind::corrupt, "pack the data with the model's tokenizer",
                 "{}: is packed with a vocabulary of {}, the model's has {}", name, packing["vocabulary"].dump(),
                 vocabulary);
    }
    formats::MdsFolder folder(source.path);
    const bool same =
        std::equal(folder.columns().begin(), folder.columns().end(), columns().begin(), columns().end(),
                   [](const auto& a, const auto& b) { return a.name == b.name && a.encoding.name == b.encoding.name; });
    if (!same || packing["sequences"] != folder.num_samples()) {
      throw_hint(ErrorKind::corrupt, "pack the data again", "{}: its {} does not match its index.json", name,
                 packing_file);
    }
    const auto repeats = static_cast<int64_t>(source.weight);
    for (const auto& [key, member] : counts) {
      int64_t all = 0;
      if (__builtin_mul_overflow(packing[key].get<int64_t>(), repeats, &all) ||
          __builtin_add_overflow(statistics_.*member, all, &(statistics_.*member))) {
        throw_hint(ErrorKind::corrupt, "pack the data again", "{}: {} \"{}\", {} times, overflow a 64-bit count",
                   shown(below(source.path, packing_file)), packing[key].dump(), key, repeats);
      }
    }
    statistics_.longest = std::max(statistics_.longest, packing["longest"].get<int64_t>());
    statistics_.squared_lengths += packing["squared_lengths"].get<double>() * static_cast<double>(repeats);
    digest.update(std::as_bytes(std::span(packing["content_hash"].get_ref<const std::string&>())));
    digest.update(std::as_bytes(std::span(&repeats, 1)));
    std::vector<int64_t> firsts;
    int64_t first = 0;
    for (const formats::MdsShardInfo& shard : folder.shards()) {
      firsts.push_back(first);
      first += shard.samples;
    }
    firsts_.push_back(std::move(firsts));
    folders_.push_back(std::move(folder));
    repeats_.push_back(repeats);
    // A single folder has the hash of the data set that it was packed from, so a run over one can resume with the
    // other.
    if (sources.size() == 1 && repeats == 1) content_hash_ = packing["content_hash"];
  }
  const double positions = static_cast<double>(statistics_.num_sequences) * static_cast<double>(sequence_length);
  statistics_.packing_efficiency = static_cast<double>(statistics_.num_tokens) / positions;
  if (content_hash_.empty()) content_hash_ = digest.hex();
  open_ = std::make_unique<Shards>(folders_);
}

PackedDataset::~PackedDataset() = default;

PackedDataset::Location PackedDataset::locate(int64_t index) const {
  if (index < 0 || index >= num_sequences()) {
    throw_error(ErrorKind::usage, "sequence {} is out of range; there are {}", index, num_sequences());
  }
  Location location;
  while (index >= folders_[location.folder].num_samples() * repeats_[location.folder]) {
    index -= folders_[location.folder].num_samples() * repeats_[location.folder];
    ++location.folder;
  }
  index %= folders_[location.folder].num_samples();
  const std::vector<int64_t>& firsts = firsts_[location.folder];
  // The last shard whose first sample is at or before `index`; empty shards precede it.
  location.shard = static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), index) - firsts.begin()) - 1;
  location.sample = index - firsts[location.shard];
  return location;
}

PackedSequence PackedDataset::get(int64_t index) const {
  const Location where = locate(index);
  const auto shard = open_->get({where.folder, where.shard});
  try {
    return parse_sequence(shard->sample(where.sample), sequence_length_, vocabulary_);
  } catch (const Error& error) {
    const formats::MdsFolder& folder = folders_[where.folder];
    throw Error(error.kind(),
                fmt::format("{} {} sample {}: {}", shown(folder.path().string()),
                            folder.shards()[where.shard].raw.basename, where.sample, error.message()),
                error.hint());
  }
}

void PackedDataset::expect(std::span<const int64_t> indices) const {
  for (const int64_t index : indices) {
    const Location where = locate(index);
    open_->expect({where.folder, where.shard});
  }
}

}  // namespace ingot::data

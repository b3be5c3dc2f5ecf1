#include "runtime/rate_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/path.h"

namespace ingot::runtime {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

Json as_json(const RatesKey& key, const std::string& what) {
  return {{"what", what},           {"processor", key.processor},  {"cores", key.cores},
          {"isa", key.isa},         {"threads", key.threads},      {"ranks", key.ranks},
          {"version", key.version}, {"operations", key.operations}};
}

std::optional<MeasuredRates> parse(const std::string& text, const Json& key, size_t count) {
  const Json found = try_parse_json(text);
  const auto unordered = [](const Json& json) { return nlohmann::json(json); };
  if (!found.is_object() || unordered(found.value("key", Json())) != unordered(key)) return std::nullopt;
  const Json values = found.value("values", Json()), date = found.value("date", Json());
  if (!values.is_array() || values.size() != count || !date.is_string()) return std::nullopt;
  MeasuredRates rates{{}, date.get<std::string>()};
  for (const Json& value : values) {
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) return std::nullopt;
    rates.values.push_back(value.get<double>());
  }
  return rates;
}

}  // namespace

fs::path RateCache::file(const std::string& what) const {
  const std::string key = as_json(key_, what).dump();
  return folder_ / fmt::format("{}-{}.json", what, sha256_hex(std::as_bytes(std::span(key))).substr(0, 16));
}

std::optional<MeasuredRates> RateCache::find(const std::string& what, size_t count) const {
  if (folder_.empty()) return std::nullopt;
  try {
    return parse(read_file(file(what), 1 << 16), as_json(key_, what), count);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string RateCache::store(const std::string& what, const MeasuredRates& rates) const {
  if (folder_.empty()) return "neither HOME nor INGOT_HOME is set";
  const fs::path path = file(what), temporary = fs::path(path).concat(fmt::format(".{}-{}", host_name(), ::gettid()));
  try {
    make_folders(folder_);
    write_file(temporary,
               Json{{"key", as_json(key_, what)}, {"values", rates.values}, {"date", rates.date}}.dump(1) + "\n");
    rename_path(temporary, path);
  } catch (const Error& failed) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    return failed.message();
  }
  return {};
}

MeasuredRates cached_or_measured(const RateCache& cache, const std::string& what, size_t count, Measure when,
                                 FunctionRef<std::vector<double>()> measure) {
  std::optional<MeasuredRates> before;
  if (when != Measure::again) before = cache.find(what, count);
  if (before && when == Measure::if_missing) return *std::move(before);
  MeasuredRates rates{measure(), utc_timestamp()};
  if (before) {
    for (size_t i = 0; i < count; ++i) rates.values[i] = std::max(rates.values[i], before->values[i]);
  }
  rates.not_cached = cache.store(what, rates);
  return rates;
}

}  // namespace ingot::runtime

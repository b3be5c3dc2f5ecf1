#include "bench/maskbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/path.h"
#include "base/threads.h"
#include "bench/times.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"

namespace ingot::bench {

namespace {

using Json = nlohmann::ordered_json;

struct FileResult {
  std::string name, reason;  // why the schema was refused; empty if it was not
  int64_t right = 0, over_a_limit = 0;
  std::vector<int64_t> invalid_accepted, valid_refused;  // test numbers
  double compile_us = 0;
  Times masks;
};

// Serialises like Python's json.dumps(value, ensure_ascii=False).
void write(const Json& value, std::string& out) {
  const auto list = [&](char open, char close) {
    out += open;
    bool is_first = true;
    for (const auto& [key, part] : value.items()) {
      if (!is_first) out += ", ";
      is_first = false;
      if (open == '{') out += Json(key).dump() + ": ";
      write(part, out);
    }
    out += close;
  };
  if (value.is_object()) {
    list('{', '}');
  } else if (value.is_array()) {
    list('[', ']');
  } else {
    out += value.dump();
  }
}

// Generalises a reason so that equal reasons can be counted: JSON pointers become their last part, and quoted text is
// removed.
std::string general(const std::string& reason) {
  std::string out;
  for (size_t at = 0; at < reason.size();) {
    if (reason[at] == '#') {
      const size_t end = std::min(reason.find_first_of(" :;,", at), reason.size());
      const size_t slash = reason.rfind('/', end);
      out += slash == std::string::npos || slash < at ? "#" : reason.substr(slash, end - slash);
      at = end;
    } else if (reason[at] == '\'' && reason.find('\'', at + 1) != std::string::npos) {
      at = reason.find('\'', at + 1) + 1;
      out += "'...'";
    } else {
      out += reason[at++];
    }
  }
  return out;
}

class Run {
 public:
  Run(const text::Tokenizer* tokenizer, std::shared_ptr<const grammar::Vocabulary> vocabulary)
      : tokenizer_(tokenizer), vocabulary_(std::move(vocabulary)) {
    if (!vocabulary_) vocabulary_ = grammar::byte_vocabulary();
  }

  FileResult file(const std::filesystem::path& path) const {
    FileResult result;
    result.name = path.filename().string();
    const auto malformed = [&]() {
      throw_error(ErrorKind::corrupt,
                  "{} is not a MaskBench file: {{\"schema\", \"tests\": [{{\"valid\", \"data\"}}]}}", path.string());
    };
    const Json content = try_parse_json(read_file(path));
    if (!content.is_object() || !content.contains("schema") || !content.contains("tests")) malformed();
    const double before = thread_us();
    std::shared_ptr<const grammar::TokenGrammar> tokens;
    try {
      tokens = std::make_shared<const grammar::TokenGrammar>(grammar::compile_json_schema(content["schema"].dump()),
                                                             vocabulary_);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) throw;
      result.reason = std::string(ingot::name(error.kind())) + ": " + error.message();
      return result;
    }
    result.compile_us = thread_us() - before;
    int64_t number = 0;
    for (const Json& test : content["tests"]) {
      if (!test.is_object() || !test.contains("data") || !test.contains("valid") || !test["valid"].is_boolean()) {
        malformed();
      }
      std::string text;
      write(test["data"], text);
      const bool is_valid = test["valid"].get<bool>();
      try {
        if (accepted(tokens, text, result.masks) == is_valid) {
          ++result.right;
        } else {
          (is_valid ? result.valid_refused : result.invalid_accepted).push_back(number);
        }
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::resource) throw;
        ++result.over_a_limit;
      }
      ++number;
    }
    return result;
  }

 private:
  bool accepted(const std::shared_ptr<const grammar::TokenGrammar>& tokens, const std::string& text,
                Times& times) const {
    grammar::Matcher matcher(tokens);
    if (!tokenizer_) return matcher.accept_bytes(text) && matcher.may_end();
    std::vector<uint32_t> mask(vocabulary_->num_words());
    for (const int32_t id : tokenizer_->encode(text, {.add_special_tokens = false, .parse_special = false})) {
      const double before = thread_us();
      matcher.fill_mask(mask);
      times.us.push_back(thread_us() - before);
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) return false;
      matcher.accept(id);
    }
    return matcher.may_end();
  }

  const text::Tokenizer* tokenizer_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
};

struct Totals {
  int64_t compiled = 0, right = 0, valid_refused = 0, invalid_accepted = 0, over_a_limit = 0;
  Times compile, masks;
  std::map<std::string, int64_t> reasons;
};

MaskBenchReport report_of(const std::vector<FileResult>& results, bool details) {
  MaskBenchReport report;
  Totals totals;
  std::vector<std::string> wrong;
  for (const FileResult& result : results) {
    if (!result.reason.empty()) {
      ++totals.reasons[general(result.reason)];
      if (details) wrong.push_back(fmt::format("refused {}: {}", result.name, result.reason));
      continue;
    }
    ++totals.compiled;
    totals.compile.us.push_back(result.compile_us);
    totals.masks.add(result.masks);
    totals.valid_refused += static_cast<int64_t>(result.valid_refused.size());
    totals.invalid_accepted += static_cast<int64_t>(result.invalid_accepted.size());
    totals.over_a_limit += result.over_a_limit;
    if (result.valid_refused.empty() && result.invalid_accepted.empty() && result.over_a_limit == 0) ++totals.right;
    for (const int64_t test : result.invalid_accepted) {
      wrong.push_back(fmt::format("ACCEPTED BUT INVALID {}: test {}", result.name, test));
    }
    for (const int64_t test : result.valid_refused) {
      if (details) wrong.push_back(fmt::format("valid but not accepted {}: test {}", result.name, test));
    }
    if (details && result.over_a_limit > 0) wrong.push_back(fmt::format("over a limit {}", result.name));
  }
  const Json compile = totals.compile.json(), masks = totals.masks.json();
  const auto us = [](const Json& times, const char* key) { return times.at(key).get<double>(); };
  report.text += fmt::format(
      "{} schemas, {} compiled, {} with every instance right\nvalid refused: {}; invalid accepted: {}; over a limit: "
      "{}\ncompile: mean {:.0f}, p50 {:.0f}, p99 {:.0f}, max {:.0f} us\n",
      results.size(), totals.compiled, totals.right, totals.valid_refused, totals.invalid_accepted, totals.over_a_limit,
      us(compile, "mean"), us(compile, "p50"), us(compile, "p99"), us(compile, "max"));
  if (!totals.masks.us.empty()) {
    report.text += fmt::format(
        "{} masks: mean {:.1f}, p50 {:.1f}, p90 {:.1f}, p99 {:.0f}, p99.9 {:.0f}, max {:.0f} us (processor time)\n",
        totals.masks.us.size(), us(masks, "mean"), us(masks, "p50"), us(masks, "p90"), us(masks, "p99"),
        us(masks, "p99_9"), us(masks, "max"));
  }
  std::vector<std::pair<int64_t, std::string>> reasons;
  for (const auto& [reason, count] : totals.reasons) reasons.emplace_back(-count, reason);
  std::sort(reasons.begin(), reasons.end());
  Json listed = Json::array();
  for (const auto& [count, reason] : reasons) {
    report.text += fmt::format("{:6} refused: {}\n", -count, reason);
    listed.push_back({{"count", -count}, {"reason", reason}});
  }
  for (const std::string& line : wrong) report.text += line + "\n";
  report.json = json_line({{"schemas", results.size()},
                           {"compiled", totals.compiled},
                           {"right", totals.right},
                           {"valid_refused", totals.valid_refused},
                           {"invalid_accepted", totals.invalid_accepted},
                           {"over_a_limit", totals.over_a_limit},
                           {"compile_us", compile},
                           {"mask_us", masks},
                           {"reasons", listed}});
  report.is_sound = totals.invalid_accepted == 0;
  return report;
}

}  // namespace

MaskBenchReport run_maskbench(const std::string& folder, const text::Tokenizer* tokenizer,
                              const std::shared_ptr<const grammar::Vocabulary>& vocabulary, int64_t threads,
                              bool details) {
  if (threads < 1 || threads > 256) throw_error(ErrorKind::usage, "--threads {}; must be from 1 to 256", threads);
  std::vector<std::filesystem::path> files;
  for (const auto& path : list_folder(folder)) {
    if (path.extension() == ".json") files.push_back(path);
  }
  if (files.empty()) throw_error(ErrorKind::not_found, "{} has no .json files", folder);
  std::sort(files.begin(), files.end());
  const Run run(tokenizer, vocabulary);
  std::vector<FileResult> results(files.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      try {
        results[i] = run.file(files[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = files.size();
      }
    }
  };
  {
    std::vector<std::future<void>> workers;  // their destructors wait
    for (int64_t i = 1; i < threads; ++i) workers.push_back(start_task("checking masks", work));
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return report_of(results, details);
}

}  // namespace ingot::bench

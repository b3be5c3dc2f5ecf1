#include "report/check_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace ingot::report {

namespace {

using Json = nlohmann::ordered_json;

bool has_result(const Json& piece) { return piece.contains("result"); }

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// A number with `digits` decimals, or a dash if it is missing.
std::string shown(const Json& object, const char* key, int digits, double factor = 1) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return "-";
  return fmt::format("{:.{}f}", factor * found->get<double>(), digits);
}

std::string gigabytes(const Json& object) {
  const double bytes = number_of(object, "memory_bytes");
  return bytes > 0 ? fmt::format("{:.1f}", bytes / 1e9) : "-";
}

// Escapes text for a cell of a Markdown table.
std::string cell(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

class Page {
 public:
  explicit Page(const Json& merged) {
    for (const Json& piece : merged.at("pieces")) {
      pieces_.push_back(&piece);
      by_name_[text_of(piece, "piece")] = &piece;
    }
  }

  std::string text() {
    head();
    devices();
    ops();
    models();
    serving();
    curves();
    jobs();
    profiles();
    kernels();
    longest_kernels();
    others();
    return text_;
  }

 private:
  // Results of pieces whose name has this prefix.
  std::vector<const Json*> results(const std::string& beginning) const {
    std::vector<const Json*> found;
    for (const Json* piece : pieces_) {
      if (text_of(*piece, "piece").starts_with(beginning) && has_result(*piece)) found.push_back(piece);
    }
    return found;
  }

  void head() {
    std::set<std::string> commits, devices;
    std::string first, last;
    for (const Json* piece : pieces_) {
      commits.insert(text_of(*piece, "commit"));
      devices.insert(text_of(*piece, "device"));
      const std::string time = text_of(*piece, "time");
      if (first.empty() || time < first) first = time;
      last = std::max(last, time);
    }
    text_ += fmt::format("# GPU check of {}\n\n{} to {}, commit {}. Made by `tools/gpu_check`.\n",
                         fmt::join(devices, ", "), first, last, fmt::join(commits, ", "));
    for (const Json* piece : results("torch-")) {
      std::vector<std::string> versions;
      const Json named = piece->at("result").value("versions", Json::object());
      for (const auto& [name, version] : named.items()) {
        versions.push_back(name + " " + (version.is_string() ? version.get<std::string>() : "?"));
      }
      if (versions.empty()) continue;
      text_ += fmt::format("\nBeside it: {}.\n", fmt::join(versions, ", "));
      return;
    }
  }

  void devices() {
    for (const Json* piece : results("devices")) {
      const auto found = piece->at("result").find("devices");
      if (found == piece->at("result").end()) continue;
      text_ +=
          "\n| device | model | kind | driver | memory GB | bf16 peak | bf16 products TFLOP/s | copy GB/s |\n"
          "|---|---|---|---|---|---|---|---|\n";
      for (const Json& d : *found) {
        text_ +=
            fmt::format("| {} | {} | {} | {} | {:.1f} | {} | {} | {} |\n", text_of(d, "name"),
                        cell(text_of(d, "model")), text_of(d, "arch"), cell(text_of(d, "driver")),
                        number_of(d, "memory_bytes") / 1e9, shown(d, "peak_tflops", 1), shown(d, "gemm_bf16_tflops", 1),
                        d.contains("copy_gb_s") ? shown(d, "copy_gb_s", 0) : shown(d, "read_gb_s", 0));
      }
      for (const Json& missing : piece->at("result").value("unavailable", Json::array())) {
        text_ += fmt::format("\n{}: {}\n", text_of(missing, "backend"), text_of(missing, "reason"));
      }
    }
  }

  void ops() {
    ops_of("ops-", "Ops", "Against the double-precision reference");
    for (const std::string tool : {"memcheck", "racecheck"})
      ops_of(tool + "-", "Ops under compute-sanitizer's " + tool, "The same");
  }

  void ops_of(const std::string& prefix, const std::string& title, const std::string& how) {
    const std::vector<const Json*> found = results(prefix);
    if (found.empty()) return;
    double passed = 0;
    size_t declined = 0, failed = 0;
    std::string list;
    for (const Json* piece : found) {
      const Json& r = piece->at("result");
      passed += number_of(r, "passed");
      declined += r.value("declined", Json::array()).size();
      for (const Json& each : r.value("failed", Json::array())) {
        ++failed;
        if (failed <= 50) list += fmt::format("- {}\n", text_of(each, "text"));
      }
    }
    text_ += fmt::format(
        "\n## {}\n\n{}: {} cases passed, {} were declined by every "
        "implementation, {} failed.\n\n{}",
        title, how, passed, declined, failed, list);
  }

  void models() {
    const std::vector<const Json*> found = results("models-");
    if (found.empty()) return;
    text_ +=
        "\n## Tiny models, against the CPU\n\nLogits, greedy answer, gradients, losses and updates of ten steps. The "
        "share is of the allowed error of the\nworst of them.\n\n"
        "| shape | job | agrees | share | worst | its error | its size |\n|---|---|---|---|---|---|---|\n";
    for (const Json* piece : found) {
      for (const Json& row : piece->at("result").value("rows", Json::array())) {
        text_ +=
            fmt::format("| {} | {} | {} | {} | {} | {:.2g} | {:.2g} |\n", text_of(row, "shape"), text_of(row, "job"),
                        row.value("agrees", false) ? "yes" : "**no**", shown(row, "share_of_allowed", 3),
                        cell(text_of(row, "worst")), number_of(row, "worst_error"), number_of(row, "worst_size"));
      }
    }
  }

  void serving() {
    const std::vector<const Json*> found = results("serving-");
    if (found.empty()) return;
    text_ +=
        "\n## Serving tiny models, against the CPU\n\nGreedy texts and their log-probabilities, of the base, adapters "
        "of "
        "three ranks and JSON under a schema. A text is parted\nwhere two tokens are equally likely to within what is "
        "allowed, and compared up to there.\n\n"
        "| shape | job | agrees | share | worst | its error | tokens | parted | wrong |\n"
        "|---|---|---|---|---|---|---|---|---|\n";
    for (const Json* piece : found) {
      for (const Json& row : piece->at("result").value("rows", Json::array())) {
        std::vector<std::string> wrong;
        for (const Json& each : row.value("wrong", Json::array())) {
          if (each.is_string()) wrong.push_back(each.get<std::string>());
        }
        text_ += fmt::format("| {} | {} | {} | {} | {} | {:.2g} | {} | {} | {} |\n", text_of(row, "shape"),
                             text_of(row, "job"), row.value("agrees", false) ? "yes" : "**no**",
                             shown(row, "share_of_allowed", 3), cell(text_of(row, "worst")),
                             number_of(row, "worst_error"), shown(row, "tokens", 0), shown(row, "parted", 0),
                             cell(fmt::format("{}", fmt::join(wrong, "; "))));
      }
    }
  }

  void curves() {
    const std::vector<const Json*> found = results("training-");
    if (found.empty()) return;
    text_ +=
        "\n## Training, against the same run on the CPU\n\n| run | precision | steps | starts | largest difference of "
        "the loss | allowed | agrees |\n|---|---|---|---|---|---|---|\n";
    for (const Json* piece : found) {
      const Json& result = piece->at("result");
      for (const Json& row : result.value("rows", Json::array())) {
        const std::string run = text_of(row, "run");
        text_ += fmt::format("| {} | {} | {} | {} | {:.2g} | {:.2g} | {} |\n", run.substr(run.rfind('/') + 1),
                             text_of(result, "precision"), number_of(row, "steps"), number_of(row, "starts"),
                             number_of(row, "largest_difference"), number_of(row, "allowed"),
                             row.value("agrees", false) ? "yes" : "**no**");
      }
    }
  }

  // The result of the same job in PyTorch, or null.
  const Json* peer_of(const std::string& piece) const {
    const auto found = by_name_.find("torch-" + piece);
    return found != by_name_.end() && has_result(*found->second) ? &found->second->at("result") : nullptr;
  }

  // The job's time on paper (tools/gpu_paper.py), or null.
  const Json* paper_of(const std::string& piece) const {
    const auto found = by_name_.find("paper");
    if (found == by_name_.end() || !has_result(*found->second)) return nullptr;
    const auto jobs = found->second->at("result").find("jobs");
    if (jobs == found->second->at("result").end() || !jobs->is_object()) return nullptr;
    const auto job = jobs->find(piece);
    return job != jobs->end() ? &*job : nullptr;
  }
  std::string on_paper(const std::string& piece, const char* key, int digits) const {
    const Json* paper = paper_of(piece);
    return paper ? fmt::format("{} ({})", shown(*paper, key, digits), text_of(*paper, "gpu")) : "-";
  }

  static std::string ratio(double ours, double theirs) {
    return ours > 0 && theirs > 0 ? fmt::format("{:.2f}", ours / theirs) : "-";
  }

  void jobs() {
    const std::vector<const Json*> training = results("train-");
    if (!training.empty()) {
      text_ +=
          "\n## Training jobs\n\nRandom weights and tokens. MFU counts causal attention, of the datasheet's peak.\n\n"
          "| job | tokens/s | on paper | TFLOP/s | MFU % | of gemm rate % | memory GB | moments, masters | torch "
          "tokens/s "
          "| torch memory GB | ratio |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
      for (const Json* piece : training) {
        const std::string name = text_of(*piece, "piece");
        const Json& r = piece->at("result");
        const Json* peer = peer_of(name);
        text_ +=
            fmt::format("| {} | {} | {} | {} | {} | {} | {} | {}, {} | {} | {} | {} |\n", name.substr(6),
                        shown(r, "tokens_per_s", 0), on_paper(name, "tokens_per_s", 0), shown(r, "tflops", 1),
                        shown(r, "mfu", 1, 100), shown(r, "gemm_share", 1, 100), gigabytes(r), text_of(r, "state"),
                        text_of(r, "master"), peer ? shown(*peer, "tokens_per_s", 0) : "-",
                        peer ? gigabytes(*peer) + (peer->value("checkpointing", false) ? " recomputing" : "") : "-",
                        peer ? ratio(number_of(r, "tokens_per_s"), number_of(*peer, "tokens_per_s")) : "-");
      }
    }
    const std::vector<const Json*> decoding = results("decode-");
    if (decoding.empty()) return;
    text_ +=
        "\n## Decoding\n\nThe floor is the weights, the adapters in the batch and the cache read once at the rate of a "
        "copy. Beside adapters stands\nthe share of the same job without.\n\n"
        "| job | streams | adapters | ms a step | on paper | floor ms | of a copy % | tokens/s | of none % | memory GB "
        "| torch ms | ratio |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for (const Json* piece : decoding) {
      const std::string name = text_of(*piece, "piece");
      const Json& r = piece->at("result");
      const Json* peer = peer_of(name);
      text_ += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name.substr(7),
                           shown(r, "batch", 0), shown(r, "adapters", 0), shown(r, "ms_per_token", 3),
                           on_paper(name, "ms_per_token", 2), shown(r, "floor_ms", 3), shown(r, "copy_share", 1, 100),
                           shown(r, "tokens_per_s", 1), share_of_none(r, decoding), gigabytes(r),
                           peer ? shown(*peer, "ms_per_token", 3) : "-",
                           peer ? ratio(number_of(*peer, "ms_per_token"), number_of(r, "ms_per_token")) : "-");
    }
    alternating(decoding);
  }

  // Tokens per second with adapters in percent of the same job without them.
  static std::string share_of_none(const Json& result, const std::vector<const Json*>& decoding) {
    const bool keeps = result.value("alternate", Json()).is_object();  // with prefix cache, unlike the others
    if (number_of(result, "adapters") == 0 || keeps) return "-";
    for (const Json* piece : decoding) {
      const Json& other = piece->at("result");
      const bool same =
          std::ranges::all_of(std::array{"model", "dtype", "weights", "batch", "prompt", "tokens"},
                              [&](const char* key) { return result.value(key, Json()) == other.value(key, Json()); });
      const double none = number_of(other, "tokens_per_s");
      if (same && number_of(other, "adapters") == 0 && none > 0) return shown(result, "tokens_per_s", 1, 100 / none);
    }
    return "-";
  }

  void alternating(const std::vector<const Json*>& decoding) {
    std::string rows;
    for (const Json* piece : decoding) {
      const Json found = piece->at("result").value("alternate", Json());
      if (!found.is_object()) continue;
      rows += fmt::format("| {} | {} | {} | {} |\n", text_of(*piece, "piece").substr(7), shown(found, "one_ms", 3),
                          shown(found, "alternating_ms", 3), shown(found, "difference_percent", 2));
    }
    if (rows.empty()) return;
    text_ +=
        "\nSteps of one token at batch 1, with one adapter and alternating two:\n\n"
        "| job | one adapter ms | alternating ms | difference % |\n|---|---|---|---|\n" +
        rows;
  }

  // The ops that take most of a step.
  void profiles() {
    constexpr size_t most = 10;
    for (const Json* piece : pieces_) {
      if (!has_result(*piece)) continue;
      const Json profile = piece->at("result").value("profile", Json());
      if (!profile.is_object()) continue;
      auto rows = profile.value("rows", std::vector<Json>());
      std::ranges::sort(rows, std::ranges::greater(), [](const Json& row) { return number_of(row, "seconds"); });
      const double step = number_of(profile, "seconds");
      text_ += fmt::format(
          "\n## Profile of {}\n\nA step of {:.2f} ms, each op timed alone.\n\n| op | shape | calls | ms | of the step "
          "% "
          "| floor ms |\n|---|---|---|---|---|---|\n",
          text_of(*piece, "piece"), 1e3 * step);
      for (size_t i = 0; i < std::min(most, rows.size()); ++i) {
        text_ += fmt::format("| {} | {} | {} | {} | {} | {} |\n", text_of(rows[i], "op"), text_of(rows[i], "shape"),
                             shown(rows[i], "calls", 0), shown(rows[i], "seconds", 3, 1e3),
                             step > 0 ? shown(rows[i], "seconds", 1, 100 / step) : "-",
                             shown(rows[i], "floor_seconds", 3, 1e3));
      }
    }
  }

  // As NVIDIA's ncu measured them (tools/gpu_check_ncu.py).
  void longest_kernels() {
    for (const Json* piece : results("longest-kernels")) {
      text_ +=
          "\n## The longest kernels\n\n| kernel | grid | launches | ms | of the memory's rate % | of the compute rate "
          "% | "
          "warps % | registers |\n|---|---|---|---|---|---|---|---|\n";
      for (const Json& row : piece->at("result").value("kernels", Json::array())) {
        text_ += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", cell(text_of(row, "kernel")),
                             text_of(row, "grid"), shown(row, "launches", 0), shown(row, "ms", 4),
                             shown(row, "memory_percent", 1), shown(row, "compute_percent", 1),
                             shown(row, "warps_percent", 1), shown(row, "registers", 0));
      }
    }
  }

  void kernels() {
    std::vector<const Json*> found = results("kernels-");
    if (found.empty()) return;
    // The best rates that any program reached on this device.
    double products = 0, copy = 0;
    for (const Json* piece : found) {
      products = std::max(products, number_of(piece->at("result"), "gemm_bf16_gflops") / 1e3);
      copy = std::max(copy, number_of(piece->at("result"), "copy_gb_s"));
    }
    if (const Json* peer = peer_of("rates")) {
      products = std::max(products, number_of(*peer, "gemm_bf16_tflops"));
      copy = std::max(copy, number_of(*peer, "copy_gb_s"));
    }
    text_ += fmt::format(
        "\n## Kernels\n\nShares of the best that was measured here by any program: gemms {:.1f} "
        "TFLOP/s, copy {:.0f} GB/s.\n\n| op | case | ms | TFLOP/s | % | GB/s | % |\n|---|---|---|---|---|---|---|\n",
        products, copy);
    const auto percent = [](double value, double peak) {
      return peak > 0 ? fmt::format("{:.1f}", 100 * value / peak) : std::string("-");
    };
    for (const Json* piece : found) {
      for (const Json& row : piece->at("result").value("rows", Json::array())) {
        const double tflops = number_of(row, "gflops") / 1e3;
        const double bytes = number_of(row, "gb_s");
        text_ += fmt::format("| {} | {} | {:.4f} | {:.2f} | {} | {:.1f} | {} |\n", text_of(row, "op"),
                             cell(text_of(row, "case")), 1e3 * number_of(row, "seconds"), tflops,
                             percent(tflops, products), bytes, percent(bytes, copy));
      }
    }
  }

  void others() {
    std::string list;
    for (const Json* piece : pieces_) {
      if (has_result(*piece) && text_of(*piece, "status") == "finished") continue;
      list += fmt::format("| {} | {} | {} |\n", text_of(*piece, "piece"), text_of(*piece, "status"),
                          cell(text_of(*piece, "message")));
    }
    if (!list.empty()) text_ += "\n## Wrong, failed or not run\n\n| piece | | why |\n|---|---|---|\n" + list;
  }

  std::vector<const Json*> pieces_;
  std::map<std::string, const Json*> by_name_;
  std::string text_;
};

}  // namespace

Json merge_checks(std::string_view lines, const std::string& source) {
  Json pieces = Json::array();
  int64_t number = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    const Json piece = try_parse_json(line);
    if (!piece.is_object() || text_of(piece, "piece").empty() || text_of(piece, "status").empty() ||
        (has_result(piece) && !piece.at("result").is_object())) {
      throw_error(ErrorKind::corrupt, "{}: line {} is not a result of tools/gpu_check", source, number);
    }
    const auto same = std::find_if(pieces.begin(), pieces.end(), [&](const Json& other) {
      return other.at("piece") == piece.at("piece") && text_of(other, "device") == text_of(piece, "device");
    });
    if (same == pieces.end()) {
      pieces.push_back(piece);
    } else if (has_result(piece) || !has_result(*same)) {
      *same = piece;
    }
  }
  if (pieces.empty()) throw_error(ErrorKind::corrupt, "{}: contains no results of tools/gpu_check", source);
  return {{"pieces", pieces}};
}

std::string check_page(const Json& merged) { return Page(merged).text(); }

}  // namespace ingot::report

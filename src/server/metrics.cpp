#include "server/metrics.h"

#include <fmt/format.h>

#include <map>

#include "base/mutex.h"

namespace ingot::server {

namespace {

constexpr std::array bounds = {0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0};

struct Histogram {
  std::array<uint64_t, bounds.size()> below{};  // not cumulative
  uint64_t count = 0;
  double sum = 0;

  void add(double value) {
    for (size_t i = 0; i < bounds.size(); ++i) {
      if (value <= bounds[i]) {
        ++below[i];
        break;
      }
    }
    ++count;
    sum += value;
  }

  void write(std::string& text, const char* name, const char* help) const {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
    uint64_t so_far = 0;
    for (size_t i = 0; i < bounds.size(); ++i) {
      so_far += below[i];
      text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds[i], so_far);
    }
    text += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count, sum);
  }
};

struct Figures {
  std::map<std::pair<std::string, int>, uint64_t> requests;
  Histogram duration, first_token;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

void write_one(std::string& text, const Gauge& gauge) {
  text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", gauge.name, gauge.help,
                      gauge.counter ? "counter" : "gauge", gauge.value);
}

}  // namespace

struct Metrics::State {
  mutable Guarded<Figures> figures;
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

void Metrics::request(std::string_view route, int status, double seconds) {
  auto figures = state_->figures.lock();
  ++figures->requests[{std::string(route), status}];
  figures->duration.add(seconds);
}

void Metrics::first_token(double seconds) { state_->figures.lock()->first_token.add(seconds); }

void Metrics::tokens(int64_t prompt, int64_t completion) {
  auto figures = state_->figures.lock();
  figures->prompt_tokens += prompt;
  figures->completion_tokens += completion;
}

std::string Metrics::text(const std::vector<Gauge>& gauges) const {
  const auto figures = state_->figures.lock();
  std::string text = "# HELP ingot_requests_total Finished requests.\n# TYPE ingot_requests_total counter\n";
  for (const auto& [what, count] : figures->requests) {
    text += fmt::format("ingot_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", what.first, what.second, count);
  }
  figures->duration.write(text, "ingot_request_seconds",
                          "Seconds from the head of a request to the end of its answer.");
  figures->first_token.write(text, "ingot_first_token_seconds",
                             "Seconds from the head of a request to its first token.");
  write_one(text, {"ingot_prompt_tokens_total", "Prompt tokens of finished requests.",
                   static_cast<double>(figures->prompt_tokens), true});
  write_one(text, {"ingot_completion_tokens_total", "Tokens generated for finished requests.",
                   static_cast<double>(figures->completion_tokens), true});
  for (const Gauge& gauge : gauges) write_one(text, gauge);
  return text;
}

}  // namespace ingot::server

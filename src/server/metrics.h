// Counts for Prometheus, in its text format (version 0.0.4).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::server {

// A figure that is asked for when the text is made.
struct Gauge {
  const char* name;
  const char* help;
  double value;
  bool counter = false;  // only ever grows
};

// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // A request ended. `route` is one of a few names; `seconds` from its head to its end.
  void request(std::string_view route, int status, double seconds);
  void first_token(double seconds);
  void tokens(int64_t prompt, int64_t completion);

  std::string text(const std::vector<Gauge>& gauges) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server

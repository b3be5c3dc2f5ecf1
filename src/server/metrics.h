// Prometheus metrics, in the text format (version 0.0.4).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::server {

// A value that is read when the text is made.
struct Gauge {
  const char* name;
  const char* help;
  double value;
  bool counter = false;  // a counter, which only grows
};

// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Counts a request that has ended. `route` is one of a few names; `seconds` from its head to its end.
  void request(std::string_view route, int status, double seconds);
  void first_token(double seconds);
  void tokens(int64_t prompt, int64_t completion);

  std::string text(const std::vector<Gauge>& gauges) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server

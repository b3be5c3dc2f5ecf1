#include "train/action_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/clock.h"

namespace ingot::train {

namespace {

constexpr const char* names[] = {"forward", "backward", "backward of weights", "reduce", "gather", "gather updated",
                                 "update",  "download", "host update",         "upload"};

// Actions that are shown in one row, unless they overlap.
const char* track_of(Action action) {
  switch (action) {
    case Action::forward:
    case Action::backward:
    case Action::backward_weight:
    case Action::update: return "compute";
    default: return names[static_cast<size_t>(action)];
  }
}

struct Span {
  Action action;
  int64_t index;
  double from, to;  // infinite: it has not ended
};

// In the order in which they began.
std::vector<Span> spans_of(const ActionLog& log) {
  std::vector<Span> spans;
  std::map<std::pair<Action, int64_t>, std::vector<size_t>> open;  // by action: places in `spans`
  for (const ActionLog::Entry& entry : log.entries()) {
    std::vector<size_t>& own = open[{entry.action, entry.index}];
    if (entry.begins) {
      own.push_back(spans.size());
      spans.push_back({entry.action, entry.index, entry.at_s, INFINITY});
    } else if (!own.empty()) {
      spans[own.front()].to = entry.at_s;
      own.erase(own.begin());
    }
  }
  return spans;
}

}  // namespace

std::string name_of(Action action) { return names[static_cast<size_t>(action)]; }

void ActionLog::compute(Action action, int64_t layer) {
  end_compute();
  begin(action, layer);
  computes_ = {action, layer};
}

void ActionLog::end_compute() {
  if (computes_) end(computes_->first, computes_->second);
  computes_.reset();
}

void ActionLog::add(Action action, int64_t index, bool begins) {
  entries_.push_back({action, index, begins, steady_seconds()});
}

std::string chrome_trace(const ActionLog& log, int rank) {
  struct Row {
    std::string name;
    double free = 0;  // the time from which it is free
  };
  std::vector<Row> rows;
  std::string events =
      fmt::format(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})", rank);
  for (const Span& span : spans_of(log)) {
    const std::string track = track_of(span.action);
    auto row = std::ranges::find_if(rows, [&](const Row& r) { return r.name == track && r.free <= span.from; });
    if (row == rows.end()) {
      events += fmt::format(
          ",\n"
          R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
          rank, rows.size(), track);
      row = rows.insert(rows.end(), {track});
    }
    row->free = span.to;
    events += fmt::format(",\n{{\"name\":\"{} {}\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},", name_of(span.action),
                          span.index, rank, row - rows.begin(), span.from * 1e6);
    const bool ended = span.to < INFINITY;
    events += ended ? fmt::format(R"("ph":"X","dur":{:.3f}}})", (span.to - span.from) * 1e6) : R"("ph":"B"})";
  }
  return "{\"traceEvents\":[\n" + events + "\n]}\n";
}

}  // namespace ingot::train

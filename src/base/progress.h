// Progress of long work: a bar on a terminal, plain lines elsewhere. Everything goes to standard error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace ingot {

enum class ProgressStyle { quiet, plain, terminal };

// terminal when standard error is a terminal that can move the cursor, else plain; quiet when `quiet`.
ProgressStyle progress_style(bool quiet);

// Width of the terminal on a descriptor: as the kernel reports it, else $COLUMNS, else 80.
int terminal_columns(int fd);

struct ProgressOptions {
  ProgressStyle style = ProgressStyle::quiet;
  std::string unit;   // "steps", "files"; "B" shows bytes as KiB, MiB, ...
  int64_t start = 0;  // already done by an earlier run: not counted in the rate
  int fd = 2;         // where to write
  int columns = 0;    // 0: ask the terminal
  double (*now)() = &steady_seconds;
};

// Owned and updated by one thread. Destroyed before finish(), it leaves the drawn line and ends it with a newline.
class Progress {
 public:
  // total <= 0 means unknown.
  Progress(std::string title, int64_t total, ProgressOptions options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Cheap enough for every step. Draws at most ten times a second on a terminal; elsewhere prints a line every five
  // seconds at most, or when another 10% is done and a second has passed. `suffix` is shown at the end ("loss 2.31").
  void update(int64_t done, std::string_view suffix = {});
  void set_total(int64_t total) { total_ = total; }
  // Shows the final state, once.
  void finish();

 private:
  std::string line(int columns) const;
  void show();

  std::string title_;
  int64_t total_;
  ProgressOptions options_;
  double started_;
  double shown_at_;
  int64_t shown_tenth_ = 0;
  int64_t done_;
  std::string suffix_;
  bool finished_ = false;
  bool drawn_ = false;
};

}  // namespace ingot

// record_launches FOLDER 32|64: records one launch of every GPU kernel while the op table runs on the simulated device
// of that many lanes, with the device memory before and after it. tools/emulate_amd.py runs AMD's machine code of the
// kernel on launches of 64 lanes, tools/emulate_ptx.py NVIDIA's PTX on those of 32. FOLDER gets, for each kernel,
// NAME.before and NAME.after: device memory from `base` on; and launches.tsv, a line a kernel:
//   name, source, ops that launch it (commas), op and case of this launch, grid x and y, threads, bytes of dynamic
//   shared memory, address of the memory, arguments (hexadecimal), and address:bytes:type:tolerance of each allocation
//   (commas; "scratch" for what the table has no type for).
// For 32 lanes also launches.gfx1100.tsv: name, grid x and y, threads and dynamic shared memory of the same launch,
// with the same arguments, on a gfx1100, whose tiles of attention have other sizes. Kernels that it does not launch are
// not there.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "tests/backend/gpu/record/recording_device.h"

namespace ingot {
namespace {

constexpr int few_blocks = 16;

// Chooses the launch to emulate: among launches with few blocks the one that changes the most bytes, else the one with
// the fewest blocks.
bool better(const RecordedLaunch& a, const RecordedLaunch& b) {
  const int64_t blocks_a = a.grid.x * a.grid.y;
  const int64_t blocks_b = b.grid.x * b.grid.y;
  if ((blocks_a <= few_blocks) != (blocks_b <= few_blocks)) return blocks_a <= few_blocks;
  if (blocks_a > few_blocks) return blocks_a < blocks_b;
  const auto changed = [](const RecordedLaunch& launch) {
    size_t bytes = 0;
    for (size_t i = 0; i < launch.before.size(); ++i) bytes += launch.before[i] != launch.after[i] ? 1 : 0;
    return bytes;
  };
  return changed(a) > changed(b);
}

// The best launch of each kernel.
class Recorder {
 public:
  void add(RecordedLaunch&& launch) {
    ops_[launch.kernel].insert(launch.op);
    const auto at = best_.find(launch.kernel);
    if (at == best_.end()) {
      best_.emplace(launch.kernel, std::move(launch));
    } else if (better(launch, at->second)) {
      at->second = std::move(launch);
    }
  }

  size_t write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    std::ofstream list(folder / "launches.tsv");
    for (const auto& [kernel, launch] : best_) {
      write_bytes(folder / (kernel + ".before"), launch.before);
      write_bytes(folder / (kernel + ".after"), launch.after);
      std::string args;
      for (const std::byte byte : launch.args) args += fmt::format("{:02x}", static_cast<unsigned>(byte));
      std::vector<std::string> regions;
      for (const RecordedRegion& region : launch.regions) {
        regions.push_back(fmt::format("{}:{}:{}:{}", region.address, region.bytes, region.type, region.tolerance));
      }
      list << fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", kernel, launch.source,
                          fmt::join(ops_.at(kernel), ","), launch.op, launch.op_case, launch.grid.x, launch.grid.y,
                          launch.threads, launch.dynamic_shared_bytes, recorded_base, args, fmt::join(regions, ","));
    }
    finish(list, folder / "launches.tsv");
    return best_.size();
  }

  // Those of `others`, launches without memory, that are the best launch of their kernel.
  void write_sizes(const std::filesystem::path& path, const std::vector<RecordedLaunch>& others) const {
    std::ofstream list(path);
    for (const RecordedLaunch& other : others) {
      const auto at = best_.find(other.kernel);
      if (at == best_.end()) continue;
      const RecordedLaunch& best = at->second;
      if (std::tie(best.op, best.op_case, best.earlier, best.args) !=
          std::tie(other.op, other.op_case, other.earlier, other.args)) {
        continue;
      }
      list << fmt::format("{}\t{}\t{}\t{}\t{}\n", other.kernel, other.grid.x, other.grid.y, other.threads,
                          other.dynamic_shared_bytes);
    }
    finish(list, path);
  }

 private:
  static void finish(std::ofstream& file, const std::filesystem::path& path) {
    file.flush();
    if (!file) throw_error(ErrorKind::resource, "{} cannot be written", path.string());
  }
  static void write_bytes(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    finish(file, path);
  }

  std::map<std::string, RecordedLaunch> best_;
  std::map<std::string, std::set<std::string>> ops_;
};

void record(const std::filesystem::path& folder, int lanes) {
  Recorder recorder;
  size_t cases = 0;
  {
    RecordingDevice device(lanes, [&](RecordedLaunch&& launch) { recorder.add(std::move(launch)); });
    cases = device.run_op_table("");
  }
  std::cout << fmt::format("{} kernels of {} cases\n", recorder.write(folder), cases);
  if (lanes == 64) return;
  std::vector<RecordedLaunch> others;
  RecordingDevice device(lanes, [&](RecordedLaunch&& launch) { others.push_back(std::move(launch)); }, "gfx1100");
  device.run_op_table("attention");
  recorder.write_sizes(folder / "launches.gfx1100.tsv", others);
}

}  // namespace
}  // namespace ingot

int main(int count, char** values) {
  const std::string lanes = count == 3 ? values[2] : "";
  if (lanes != "32" && lanes != "64") {
    std::cerr << "usage: record_launches FOLDER 32|64\n";
    return 2;
  }
  try {
    ingot::record(values[1], std::stoi(lanes));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}

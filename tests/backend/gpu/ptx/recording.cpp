#include "tests/backend/gpu/ptx/recording.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/strings.h"
#include "tests/backend/gpu/ptx/arithmetic.h"

namespace ingot::ptx {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<std::byte> bytes_of_file(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<std::byte> bytes_of_hexadecimal(const std::string& digits) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 2 <= digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

size_t bytes_of_type(const std::string& type) { return type == "bf16" || type == "f16" ? 2 : 4; }

double value_at(const std::byte* at, const std::string& type) {
  if (bytes_of_type(type) == 4) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t code = 0;
  std::memcpy(&code, at, sizeof code);
  return type == "bf16" ? small_float(code, 8, 7) : small_float(code, 5, 10);
}

// The largest error of a region, relative to its largest value; infinity if values that are not finite differ.
double error_of(const std::byte* wanted, const std::byte* found, const Region& region) {
  const size_t size = bytes_of_type(region.type);
  double error = 0;
  double largest = 1e-30;
  for (size_t at = 0; at + size <= region.place.bytes; at += size) {
    const double a = value_at(wanted + at, region.type);
    const double b = value_at(found + at, region.type);
    if (std::isfinite(a) && std::isfinite(b)) {
      error = std::max(error, std::fabs(a - b));
      largest = std::max(largest, std::fabs(a));
    } else if (a != b && !(std::isnan(a) && std::isnan(b))) {
      return infinity;
    }
  }
  return error / largest;
}

}  // namespace

Recording read_recording(const std::filesystem::path& folder, const std::string& kernel) {
  for (const std::string& line : split(read_file(folder / "launches.tsv"), '\n')) {
    const std::vector<std::string> fields = split(line, '\t');
    if (fields[0] != kernel) continue;
    if (fields.size() != 12) throw_error(ErrorKind::corrupt, "{} fields of '{}', and not 12", fields.size(), kernel);
    Recording recording;
    recording.kernel = kernel;
    recording.shape = {std::stoll(fields[5]), std::stoll(fields[6]), std::stoi(fields[7]), std::stoull(fields[8])};
    recording.base = std::stoull(fields[9]);
    recording.parameters = bytes_of_hexadecimal(fields[10]);
    for (const std::string& region : split(fields[11], ',')) {
      const std::vector<std::string> parts = split(region, ':');
      if (parts.size() != 4) throw_error(ErrorKind::corrupt, "the allocation '{}' of '{}'", region, kernel);
      recording.regions.push_back({{std::stoull(parts[0]), std::stoull(parts[1])}, parts[2], std::stod(parts[3])});
    }
    recording.before = bytes_of_file(folder / (kernel + ".before"));
    recording.after = bytes_of_file(folder / (kernel + ".after"));
    return recording;
  }
  throw_error(ErrorKind::not_found, "{} has no launch of '{}'", folder.string(), kernel);
}

Difference compare(const Recording& recording, const std::vector<std::byte>& memory) {
  const std::vector<std::byte>& after = recording.after;
  if (memory == after) return {true, true, 0};
  Difference difference{false, true, 0};
  std::vector<bool> in_region(after.size());
  for (const Region& region : recording.regions) {
    const size_t begin = region.place.address - recording.base;
    const size_t end = begin + region.place.bytes;
    std::fill(in_region.begin() + static_cast<std::ptrdiff_t>(begin),
              in_region.begin() + static_cast<std::ptrdiff_t>(end), true);
    if (std::memcmp(after.data() + begin, memory.data() + begin, region.place.bytes) == 0) continue;
    const bool is_float =
        region.type == "f32" || region.type == "bf16" || region.type == "f16" || region.type == "scratch";
    const double error = is_float ? error_of(after.data() + begin, memory.data() + begin, region) : infinity;
    difference.error = std::max(difference.error, error);
    difference.within = difference.within && error <= region.tolerance;
  }
  for (size_t i = 0; i < after.size(); ++i) {
    if (!in_region[i] && after[i] != memory[i]) return {false, false, infinity};
  }
  return difference;
}

}  // namespace ingot::ptx

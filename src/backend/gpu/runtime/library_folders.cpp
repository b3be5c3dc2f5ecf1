#include "backend/gpu/runtime/library_folders.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/environment.h"
#include "base/strings.h"

namespace ingot::gpu {
namespace {

namespace fs = std::filesystem;

// Collects folders in the order in which they are found, without duplicates.
class Folders {
 public:
  void add(const fs::path& folder) {
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) return;
    if (std::find(found_.begin(), found_.end(), folder.string()) == found_.end()) found_.push_back(folder.string());
  }
  // Adds folder/NAME/below for each sub-folder NAME that begins with `start`, sorted by name.
  void add_matching(const fs::path& folder, std::string_view start, const fs::path& below) {
    std::error_code ignored;
    std::vector<fs::path> matching;
    for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
      if (at->path().filename().string().starts_with(start)) matching.push_back(at->path());
    }
    std::sort(matching.begin(), matching.end());
    for (const fs::path& each : matching) add(each / below);
  }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::vector<std::string> found_;
};

// The folder that the environment variable names; empty if it is not set.
fs::path named(const char* variable) {
  const char* value = environment(variable);
  return value != nullptr ? fs::path(value) : fs::path();
}

}  // namespace

std::vector<std::string> site_folders() {
  Folders all;
  const auto add_prefix = [&](const fs::path& prefix) {
    if (prefix.empty()) return;
    all.add_matching(prefix / "lib", "python3", "site-packages");
    all.add_matching(prefix / "lib", "python3", "dist-packages");
  };
  add_prefix(named("VIRTUAL_ENV"));
  add_prefix(named("CONDA_PREFIX"));
  const char* path = environment("PATH");
  for (const std::string& folder : split(path != nullptr ? path : "", ':')) {
    const fs::path python = fs::path(folder) / "python3";
    std::error_code error;
    if (folder.empty() || !fs::exists(python, error)) continue;
    add_prefix(python.parent_path().parent_path());
    const fs::path real = fs::canonical(python, error);
    if (!error) add_prefix(real.parent_path().parent_path());
    add_prefix("/usr/local");  // where Debian's python3 looks first
    break;
  }
  if (const fs::path home = named("HOME"); !home.empty()) add_prefix(home / ".local");
  return all.take();
}

std::vector<std::string> nvidia_folders() {
  Folders all;
  for (const fs::path& toolkit : {named("CUDA_HOME"), named("CUDA_PATH"), fs::path("/usr/local/cuda")}) {
    if (toolkit.empty()) continue;
    all.add(toolkit / "lib64");
    all.add(toolkit / "lib");
  }
  if (const fs::path conda = named("CONDA_PREFIX"); !conda.empty()) all.add(conda / "lib");
  for (const std::string& site : site_folders()) all.add_matching(fs::path(site) / "nvidia", "", "lib");
  return all.take();
}

std::vector<std::string> amd_folders() {
  Folders all;
  for (const fs::path& toolkit : {named("ROCM_PATH"), fs::path("/opt/rocm")}) {
    if (toolkit.empty()) continue;
    all.add(toolkit / "lib");
    all.add(toolkit / "lib64");
  }
  for (const std::string& site : site_folders()) {
    all.add_matching(site, "_rocm_sdk_", "lib");
    all.add(fs::path(site) / "torch/lib");
  }
  return all.take();
}

}  // namespace ingot::gpu

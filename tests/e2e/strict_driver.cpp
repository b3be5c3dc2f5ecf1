#include "tests/e2e/strict_driver.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tests/locations.h"

namespace ingot::e2e {

namespace fs = std::filesystem;

std::string on_strict_driver(const StrictMachine& machine) {
  std::string all;
  const auto assign = [&](const std::string& variable, const std::string& value) {
    all += variable + "='" + value + "' ";
  };
  assign("INGOT_CUDA_LIBRARY", strict_cuda);
  assign("INGOT_HIP_LIBRARY", strict_hip);
  assign("STRICT_DRIVER", machine.settings);
  if (machine.graphs) assign("INGOT_GRAPHS", "1");
  for (const auto& [variable, file] :
       {std::pair("CUBLASLT", "cublaslt"), std::pair("CUDNN", "cudnn"), std::pair("HIPBLASLT", "hipblaslt"),
        std::pair("NCCL", "nccl"), std::pair("RCCL", "rccl")}) {
    assign("INGOT_" + std::string(variable) + "_LIBRARY",
           machine.libraries ? test_libraries + std::string("/libstrict_") + file + ".so" : "/nowhere");
  }
  for (const char* library : {"NVML", "ROCM_SMI"}) assign("INGOT_" + std::string(library) + "_LIBRARY", "/nowhere");
  return all + machine.variables + " ";
}

Result run_on_strict_driver(const Program& program, const StrictMachine& machine,
                            const std::vector<std::string>& arguments) {
  const fs::path home = program / "home";
  if (!fs::exists(fs::symlink_status(home))) make_home(home);
  std::string command = on_strict_driver(machine) + "INGOT_HOME='" + home.string() + "' " + ingot_with_test_code;
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  const fs::path output = program / "output", error = program / "error";
  const int status = std::system((command + " >'" + output.string() + "' 2>'" + error.string() + "'").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(output), read(error)};
}

Json report_on_strict_driver(const Program& program, const StrictMachine& machine, std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Result result = run_on_strict_driver(program, machine, arguments);
  EXPECT_EQ(result.code, 0) << result.error;
  for (const char* misuse : {"strict driver:", "stand-in library:"})
    EXPECT_EQ(result.error.find(misuse), std::string::npos) << result.error;
  return json_of(result);
}

}  // namespace ingot::e2e

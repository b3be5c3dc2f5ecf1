// The report of tools/gpu_check: which line of a piece counts, and which results are shown side by side.
#include "report/check_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot::report {
namespace {

std::string line(const std::string& piece, const std::string& status, const std::string& rest) {
  return R"({"piece":")" + piece + R"(","device":"cuda:0","commit":"c1","status":")" + status +
         R"(","part":"p","time":"2026-11-21T00:00:00Z","seconds":3,)" + rest + "}\n";
}

std::string result(const std::string& inside) { return R"("result":{)" + inside + "}"; }

TEST(CheckReport, TheLastResultCountsAndFailuresDoNotReplaceIt) {
  const std::string lines = line("a", "skipped", R"("message":"no time")") + line("b", "wrong", result(R"("x":1)")) +
                            line("a", "finished", result(R"("x":2)")) + line("b", "finished", result(R"("x":3)")) +
                            line("a", "failed", R"("message":"later")");
  const nlohmann::ordered_json pieces = merge_checks(lines, "lines").at("pieces");
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].at("result").at("x"), 2);
  EXPECT_EQ(pieces[1].at("result").at("x"), 3);
}

TEST(CheckReport, JobsAreComparedWithTorchAndKernelsWithTheBestCeiling) {
  const std::string lines =
      line("train-m", "finished",
           result(R"("tokens_per_s":3000,"tflops":12.5,"mfu":0.5,"memory_bytes":2e9,"state":"bf16","master":"fp32")")) +
      line("torch-train-m", "finished", result(R"("tokens_per_s":2000,"memory_bytes":4e9)")) +
      line("decode-m", "finished", result(R"("ms_per_token":2.0,"floor_ms":1.5)")) +
      line("torch-decode-m", "finished", result(R"("ms_per_token":3.0)")) +
      line("kernels-a", "finished",
           result(R"("gemm_bf16_gflops":700000,"copy_gb_s":4000,"rows":[{"op":"rope","case":"a|b","seconds":0.001,)"
                  R"("gflops":350000,"gb_s":2150}])")) +
      line("torch-rates", "finished",
           result(R"("versions":{"torch":"2.11"},"gemm_bf16_tflops":500,"copy_gb_s":4300)")) +
      line(
          "paper", "finished",
          result(
              R"("jobs":{"train-m":{"gpu":"H200","tokens_per_s":2500},"decode-m":{"gpu":"H200","ms_per_token":1.8}})")) +
      line("train-n", "refused", R"("message":"no fp8")");
  const std::string page = check_page(merge_checks(lines, "lines"));
  for (const char* words : {"| m | 3000 | 2500 (H200) | 12.5 | 50.0 | - | 2.0 | bf16, fp32 | 2000 | 4.0 | 1.50 |",
                            "| m | - | - | 2.000 | 1.80 (H200) | 1.500 | - | - | - | - | 3.000 | 1.50 |",
                            "| rope | a\\|b | 1.0000 | 350.00 | 50.0 | 2150.0 | 50.0 |",
                            "| train-n | refused | no fp8 |", "Beside it: torch 2.11."}) {
    EXPECT_NE(page.find(words), std::string::npos) << "'" << words << "' not found in:\n" << page;
  }
}

TEST(CheckReport, AdapterJobsAreComparedWithTheJobWithoutAdapters) {
  const std::string same = R"("model":"m","dtype":"bf16","weights":"bf16","prompt":128,"tokens":64,)";
  const std::string lines =
      line("decode-m-other", "finished", result(same + R"("batch":8,"adapters":0,"tokens_per_s":1)")) +
      line("decode-m-with", "finished",
           result(same +
                  R"("batch":32,"adapters":4,"tokens_per_s":900,"ms_per_token":3,"floor_ms":1.5,"copy_share":0.5)")) +
      line("decode-m-none", "finished", result(same + R"("batch":32,"adapters":0,"tokens_per_s":1000)")) +
      line("decode-m-two", "finished",
           result(R"("adapters":2,"alternate":{"one_ms":2,"alternating_ms":2.01,"difference_percent":0.5})"));
  const std::string page = check_page(merge_checks(lines, "lines"));
  for (const char* words :
       {"| m-with | 32 | 4 | 3.000 | - | 1.500 | 50.0 | 900.0 | 90.0 | - | - | - |",
        "| m-none | 32 | 0 | - | - | - | - | 1000.0 | - | - | - | - |", "| m-two | 2.000 | 2.010 | 0.50 |"}) {
    EXPECT_NE(page.find(words), std::string::npos) << "'" << words << "' not found in:\n" << page;
  }
}

TEST(CheckReport, OpsUnderASanitizerProfilesAndLongestKernelsAreShown) {
  const std::string lines =
      line("memcheck-0", "finished", result(R"("passed":3,"declined":[],"failed":[])")) +
      line("memcheck-1", "wrong", result(R"("passed":4,"declined":["x"],"failed":[{"text":"rope is wrong"}])")) +
      line("train-m", "finished",
           result(R"("profile":{"seconds":0.5,"rows":[{"op":"rope","shape":"-","calls":2,"seconds":0.1},)"
                  R"({"op":"matmul","shape":"8x8x8","calls":4,"seconds":0.25,"floor_seconds":0.2}]})")) +
      line("longest-kernels", "finished",
           result(R"x("kernels":[{"kernel":"gemm(float|int)","grid":"(1, 2, 3)","launches":7,"ms":1.25,)x"
                  R"x("memory_percent":50,"compute_percent":70.25,"warps_percent":12.5,"registers":128}])x"));
  const std::string page = check_page(merge_checks(lines, "lines"));
  const auto at = [&](const char* words) {
    const size_t found = page.find(words);
    EXPECT_NE(found, std::string::npos) << "'" << words << "' not found in:\n" << page;
    return found;
  };
  at("## Ops under compute-sanitizer's memcheck\n\nThe same: 7 cases passed, 1 were declined by every implementation, "
     "1 failed");
  at("- rope is wrong");
  at("| memcheck-1 | wrong |");
  at("A step of 500.00 ms");
  EXPECT_LT(at("| matmul | 8x8x8 | 4 | 250.000 | 50.0 | 200.000 |"), at("| rope | - | 2 | 100.000 | 20.0 | - |"));
  at("| gemm(float\\|int) | (1, 2, 3) | 7 | 1.2500 | 50.0 | 70.2 | 12.5 | 128 |");
}

TEST(CheckReport, FailedServingChecksGiveTheReason) {
  const std::string lines = line(
      "serving-m", "wrong",
      result(R"("rows":[{"shape":"m","job":"alone fp32","agrees":false,"share_of_allowed":0.5,"worst":"JSON, token 3",)"
             R"("worst_error":0.001,"tokens":90,"parted":2,"wrong":["JSON: is '|'","base: 3 tokens"]}])"));
  const std::string page = check_page(merge_checks(lines, "lines"));
  const std::string row =
      "| m | alone fp32 | **no** | 0.500 | JSON, token 3 | 0.001 | 90 | 2 | JSON: is '\\|'; base: 3 tokens |";
  EXPECT_NE(page.find(row), std::string::npos) << page;
  EXPECT_NE(page.find("| serving-m | wrong |"), std::string::npos) << page;
}

TEST(CheckReport, InvalidLinesAreNamed) {
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string(R"({"piece":"a"})"), line("a", "finished", R"("result":3)")}) {
    try {
      merge_checks(line("a", "finished", result("")) + bad, "file");
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      EXPECT_NE(error.message().find("file: line 2"), std::string::npos) << error.message();
    }
  }
  EXPECT_THROW(merge_checks("\n", "file"), Error);
}

}  // namespace
}  // namespace ingot::report

// What LoRA may target in every family, by the names that PEFT knows the modules by.
#include "spec/lora.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "models/testing/family_specs.h"

namespace ingot::models {
namespace {

const std::vector<std::string>& targets_of(const std::string& family) {
  static const std::vector<std::string> llama = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                 "gate_proj", "up_proj", "down_proj"};
  static const std::map<std::string, std::vector<std::string>> others = {
      {"mixtral", {"q_proj", "k_proj", "v_proj", "o_proj", "gate", "w1", "w2", "w3"}},
      {"gpt2", {"c_attn", "c_proj", "c_fc"}},
      {"gpt_neox", {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}},
      {"mpt", {"Wqkv", "out_proj", "up_proj", "down_proj"}}};
  const auto found = others.find(family);
  return found == others.end() ? llama : found->second;
}

TEST(LoraTargets, EveryLinearLayerOfEveryFamily) {
  std::set<std::string> seen;
  for (const FamilyCase& c : family_cases()) {
    SCOPED_TRACE(c.name);
    seen.insert(c.spec.family);
    const std::vector<std::string> listed = spec::lora_targets(c.spec);
    std::set<std::string> expected(targets_of(c.spec.family).begin(), targets_of(c.spec.family).end());
    if (!c.spec.tied_head) expected.insert(c.spec.family == "gpt_neox" ? "embed_out" : "lm_head");
    EXPECT_EQ(std::set<std::string>(listed.begin(), listed.end()), expected);

    spec::LoraSpec lora{.rank = 4, .alpha = 8, .targets = {"all-linear"}};
    std::set<size_t> all;
    for (const spec::LoraParam& p : spec::lora_parameters(c.spec, lora)) all.insert(p.base);
    std::set<size_t> by_name;
    const std::vector<spec::ParamSpec> table = spec::parameters(c.spec);
    for (const std::string& target : targets_of(c.spec.family)) {
      lora.targets = {target};
      const std::vector<spec::LoraParam> adapted = spec::lora_parameters(c.spec, lora);
      EXPECT_GE(adapted.size(), static_cast<size_t>(c.spec.layers)) << target;
      for (const spec::LoraParam& p : adapted) {
        by_name.insert(p.base);
        EXPECT_EQ(p.out, table[p.base].shape[0]);
        EXPECT_EQ(p.in, table[p.base].shape[1]);
        EXPECT_TRUE(p.module == target || p.module.ends_with("." + target)) << p.module;
      }
    }
    EXPECT_EQ(all, by_name);  // the head is left out of both
  }
  EXPECT_EQ(seen, std::set<std::string>(spec::families().begin(), spec::families().end()));
}

}  // namespace
}  // namespace ingot::models

// The layers that LoRA can target in every family, under PEFT's module names.
#include "spec/lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "models/testing/family_specs.h"

namespace ingot::models {
namespace {

TEST(LoraTargets, AreEveryLinearLayerOfEveryFamily) {
  std::set<std::string> seen;
  for (const FamilyCase& c : family_cases()) {
    SCOPED_TRACE(c.name);
    seen.insert(c.spec.family);
    const std::vector<std::string> listed = spec::lora_targets(c.spec);
    std::set<std::string> expected(c.linear_layers.begin(), c.linear_layers.end());
    if (!c.spec.tied_head) expected.insert(c.spec.family == "gpt_neox" ? "embed_out" : "lm_head");
    EXPECT_EQ(std::set<std::string>(listed.begin(), listed.end()), expected);

    spec::LoraSpec lora{.rank = 4, .alpha = 8, .targets = {"all-linear"}};
    std::set<size_t> all;
    for (const spec::LoraParam& p : spec::lora_parameters(c.spec, lora)) all.insert(p.base);
    // A layer type that only some blocks have occurs in some block.
    const bool alike = std::all_of(c.spec.layers.begin(), c.spec.layers.end(), [&](const spec::LayerSpec& layer) {
      return layer.mlp.index() == c.spec.layers.front().mlp.index();
    });
    std::set<size_t> by_name;
    const std::vector<spec::ParamSpec> table = spec::parameters(c.spec);
    for (const std::string& target : c.linear_layers) {
      lora.targets = {target};
      const std::vector<spec::LoraParam> adapted = spec::lora_parameters(c.spec, lora);
      EXPECT_GE(adapted.size(), alike ? c.spec.layers.size() : 1) << target;
      for (const spec::LoraParam& p : adapted) {
        by_name.insert(p.base);
        EXPECT_EQ(p.out, table[p.base].shape[0]);
        EXPECT_EQ(p.in, table[p.base].shape[1]);
        EXPECT_TRUE(p.module == target || p.module.ends_with("." + target)) << p.module;
      }
    }
    EXPECT_EQ(all, by_name);  // both exclude the head
  }
  EXPECT_EQ(seen, std::set<std::string>(spec::families().begin(), spec::families().end()));
}

}  // namespace
}  // namespace ingot::models

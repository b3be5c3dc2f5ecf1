#include "base/config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace sample {

enum class Mode { fast, bitwise };

struct Optimizer {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.95};
  bool operator==(const Optimizer&) const = default;
};

// One value, or {path, weight}.
struct Source {
  std::string path;
  double weight = 1;
  static Source from_text(const std::string& text) { return {text, 1}; }
  bool operator==(const Source&) const = default;
};

struct Adapter {
  ingot::AutoOr<int64_t> rank;
  bool operator==(const Adapter&) const = default;
};

struct Recipe {
  std::string name;
  int64_t steps = 10;
  int threads = 1;
  bool shuffle = true;
  Mode mode = Mode::fast;
  std::optional<double> clip;
  std::optional<Adapter> adapter;
  std::vector<std::string> prompts;
  ingot::OneOrMany<Source> train;
  ingot::AutoOr<int64_t> micro;
  Optimizer optimizer;
  bool operator==(const Recipe&) const = default;
};

template <class Visitor>
void describe(Visitor& v, Optimizer& o) {
  v.field("lr", o.lr, "learning rate at the peak", {.above = 0});
  v.field("betas", o.betas, "AdamW's two decay rates", {.min = 0, .below = 1});
}
template <class Visitor>
void describe(Visitor& v, Source& s) {
  v.field("path", s.path, "file or folder", {.required = true});
  v.field("weight", s.weight, "share", {.above = 0});
}
template <class Visitor>
void describe(Visitor& v, Adapter& a) {
  v.field("rank", a.rank, "rank, or auto", {.min = 1, .max = 1024});
}
template <class Visitor>
void describe(Visitor& v, Recipe& r) {
  v.field("name", r.name, "name of the run", {.required = true});
  v.field("steps", r.steps, "optimizer steps", {.min = 1});
  v.field("threads", r.threads, "CPU threads");
  v.field("shuffle", r.shuffle, "whether to shuffle");
  v.field("mode", r.mode, "order of gradient sums");
  v.field("clip", r.clip, "largest gradient norm", {.above = 0});
  v.field("adapter", r.adapter, "LoRA; none trains all weights");
  v.field("prompts", r.prompts, "prompts sampled at each evaluation");
  v.field("train", r.train, "training data");
  v.field("micro", r.micro, "sequences at a time", {.min = 1});
  v.section("optimizer", r.optimizer, "update of the weights");
}

}  // namespace sample

template <>
struct ingot::EnumNames<sample::Mode> {
  static constexpr std::pair<sample::Mode, const char*> names[] = {{sample::Mode::fast, "fast"},
                                                                   {sample::Mode::bitwise, "bitwise"}};
};

namespace ingot {
namespace {

using sample::Recipe;

Recipe recipe_of(std::string_view text) { return read_config<Recipe>(ConfigNode::from_text(text, "r.yaml")); }

Error recipe_error_of(std::string_view text) {
  Error error = ingot::error_of([&] { recipe_of(text); });
  EXPECT_EQ(error.kind(), ErrorKind::usage) << text.substr(0, 100);
  return error;
}

std::string message_of(std::string_view text) { return recipe_error_of(text).message(); }

TEST(Config, ReadsEveryType) {
  const Recipe r = recipe_of(R"(
name: "first run"
steps: 1e3
threads: 4
shuffle: false
mode: bitwise
clip: .5
adapter: {rank: auto}
prompts: [hello, 'a: b']
train:
  - path: a.jsonl
    weight: 2
  - b.jsonl
micro: 8
optimizer:
  lr: 1e-4
)");
  EXPECT_EQ(r.name, "first run");
  EXPECT_EQ(r.steps, 1000);
  EXPECT_EQ(r.threads, 4);
  EXPECT_FALSE(r.shuffle);
  EXPECT_EQ(r.mode, sample::Mode::bitwise);
  EXPECT_EQ(r.clip, 0.5);
  ASSERT_TRUE(r.adapter.has_value());
  EXPECT_TRUE(r.adapter->rank.is_auto());
  EXPECT_EQ(r.prompts, (std::vector<std::string>{"hello", "a: b"}));
  EXPECT_EQ(r.train.values, (std::vector<sample::Source>{{"a.jsonl", 2}, {"b.jsonl", 1}}));
  EXPECT_EQ(r.micro.value, 8);
  EXPECT_EQ(r.optimizer.lr, 1e-4);
  EXPECT_EQ(r.optimizer.betas, (std::vector<double>{0.9, 0.95}));
}

TEST(Config, AbsentAndNullKeysKeepDefaults) {
  const Recipe r = recipe_of("name: a\nclip: null\noptimizer:\ntrain: one.txt\n");
  EXPECT_EQ(r.steps, 10);
  EXPECT_FALSE(r.clip.has_value());
  EXPECT_FALSE(r.adapter.has_value());
  EXPECT_EQ(r.optimizer, sample::Optimizer{});
  EXPECT_EQ(r.train.values, (std::vector<sample::Source>{{"one.txt", 1}}));
}

TEST(Config, MessagesNameFileLineKeyExpectedAndFound) {
  EXPECT_EQ(message_of("name: a\noptimizer:\n  lr: fast\n"), "r.yaml:3: optimizer.lr: expected a number, found 'fast'");
  EXPECT_EQ(message_of("name: a\nsteps: 1.5"), "r.yaml:2: steps: expected a whole number, found '1.5'");
  EXPECT_EQ(message_of("name: a\nsteps: '5'"), "r.yaml:2: steps: expected a whole number, found the text \"5\"");
  EXPECT_EQ(message_of("name: a\nsteps: 0"), "r.yaml:2: steps: expected a number of at least 1, found '0'");
  EXPECT_EQ(message_of("name: a\nshuffle: yes"), "r.yaml:2: shuffle: expected true or false, found 'yes'");
  EXPECT_EQ(message_of("name: a\nthreads: 3000000000"),
            "r.yaml:2: threads: expected a whole number from -2147483648 to 2147483647, found '3000000000'");
  EXPECT_EQ(message_of("name: a\noptimizer: {betas: [0.9, 1.0]}"),
            "r.yaml:2: optimizer.betas[1]: expected a number of at least 0 and below 1, found '1.0'");
  EXPECT_EQ(message_of("name: a\nprompts: hello"), "r.yaml:2: prompts: expected a list, found 'hello'");
  EXPECT_EQ(message_of("name: [1, 2]"), "r.yaml:1: name: expected text, found a list of 2");
  EXPECT_EQ(message_of("name: a\nmicro: many"), "r.yaml:2: micro: expected a number or auto, found 'many'");
  EXPECT_EQ(message_of("name: a\nmicro: 0"), "r.yaml:2: micro: expected a number of at least 1, found '0'");
  EXPECT_EQ(message_of("name: a\noptimizer: adam"),
            "r.yaml:2: optimizer: expected a section (key: value lines), found 'adam'");
  EXPECT_EQ(message_of("name: a\nclip: .inf"), "r.yaml:2: clip: expected a number, found '.inf'");
  EXPECT_EQ(message_of("name: a\nclip: nan"), "r.yaml:2: clip: expected a number, found 'nan'");
  EXPECT_EQ(message_of("- 1\n- 2\n"), "r.yaml:1: expected a section (key: value lines), found a list of 2");
}

TEST(Config, UnknownKeysSuggestTheNearest) {
  const Error error = recipe_error_of("name: a\noptimizer:\n  lr: 1\n  beta: [0.5]\n");
  EXPECT_EQ(error.message(), "r.yaml:4: unknown key 'optimizer.beta'");
  EXPECT_EQ(error.hint(), "did you mean 'betas'?");
  // The error names the misspelled key, not the required key that is missing because of it.
  EXPECT_EQ(recipe_error_of("nmae: a\n").hint(), "did you mean 'name'?");
  EXPECT_EQ(recipe_error_of("name: a\nzzzzzzzz: 1").hint().substr(0, 11), "known keys:");
  EXPECT_EQ(recipe_error_of("name: a\nmode: bitwsie").hint(), "did you mean 'bitwise'?");
}

TEST(Config, MissingRequiredKeysAreNamed) {
  EXPECT_EQ(message_of("steps: 5"), "r.yaml:1: the key 'name' is missing");
  EXPECT_EQ(message_of("# nothing\n...\n"), "r.yaml: the key 'name' is missing");
  EXPECT_EQ(message_of(""), "r.yaml: the key 'name' is missing");
  EXPECT_EQ(message_of("name: a\ntrain:\n  - weight: 2\n"), "r.yaml:3: the key 'train[0].path' is missing");
}

TEST(Config, OverridesReplaceValues) {
  ConfigNode node = ConfigNode::from_text("name: a\ntrain: [{path: x}]\nsteps: 7\n", "r.yaml");
  EXPECT_EQ(node.apply_override("optimizer.lr=2e-5"), "optimizer.lr");
  node.apply_override("prompts=[one, two]");
  node.apply_override("train.0.weight=3");
  node.apply_override("adapter.rank=4");
  node.apply_override("name=x=y");
  EXPECT_FALSE(node.find("steps")->from_override());
  EXPECT_TRUE(node.find("name")->from_override());
  node.erase("steps");
  const Recipe r = read_config<Recipe>(node);
  EXPECT_EQ(r.optimizer.lr, 2e-5);
  EXPECT_EQ(r.prompts, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(r.train.values, (std::vector<sample::Source>{{"x", 3}}));
  EXPECT_EQ(r.adapter->rank.value, 4);
  EXPECT_EQ(r.name, "x=y");
  EXPECT_EQ(r.steps, 10);
}

TEST(Config, WrongOverridesAreNamed) {
  const auto message = [](const std::string& assignment) {
    ConfigNode node = ConfigNode::from_text("name: a\ntrain: [{path: x}]\n", "r.yaml");
    try {
      node.apply_override(assignment);
      read_config<Recipe>(node);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message("steps"), "command line, steps: is not an override");
  EXPECT_EQ(message("a..b=1"), "command line, a..b=1: is not an override");
  EXPECT_EQ(message("=1"), "command line, =1: is not an override");
  EXPECT_EQ(message("steps=many"), "command line, steps=many: steps: expected a whole number, found 'many'");
  EXPECT_EQ(message("name.first=b"), "command line, name.first=b: name is 'a', which has no key 'first'");
  EXPECT_EQ(message("train.1.weight=b"),
            "command line, train.1.weight=b: train is a list of 1 items; '1' is not a valid index");
  EXPECT_EQ(message("optimizer.lrr=1"), "command line, optimizer.lrr=1: unknown key 'optimizer.lrr'");
  EXPECT_NE(message("prompts=[a").find("bracket left open"), std::string::npos);
}

TEST(Config, WrittenTextIsReadBack) {
  Recipe r;
  r.name = "a: tricky # name\nwith \"quotes\" and \xc3\xa9";
  r.steps = 1234567890123;
  r.mode = sample::Mode::bitwise;
  r.clip = 0.1;
  r.adapter = sample::Adapter{{16}};
  r.prompts = {"",      "null",    "true", "12", "1e5", "~",  "- a",  "yes", " lead",
               "plain", "a/b-c.d", "[x",   "{y", "&z",  "*w", "0x10", "-"};
  r.train.values = {{"a.jsonl", 2.5}, {"b", 1e-7}};
  r.optimizer.lr = 1.0 / 3;
  const std::string text = write_config(r);
  EXPECT_EQ(recipe_of(text), r) << text;
  EXPECT_EQ(write_config(recipe_of(text)), text);
}

TEST(Config, WrittenTextHasComments) {
  Recipe r;
  r.name = "a";
  r.train.values = {{"x", 2}};
  EXPECT_EQ(write_config(r),
            "name: a  # name of the run\n"
            "steps: 10  # optimizer steps\n"
            "threads: 1  # CPU threads\n"
            "shuffle: true  # whether to shuffle\n"
            "mode: fast  # order of gradient sums\n"
            "clip: null  # largest gradient norm\n"
            "adapter: null  # LoRA; none trains all weights\n"
            "prompts: []  # prompts sampled at each evaluation\n"
            "# training data\n"
            "train:\n"
            "  - path: x  # file or folder\n"
            "    weight: 2  # share\n"
            "micro: auto  # sequences at a time\n"
            "# update of the weights\n"
            "optimizer:\n"
            "  lr: 0.001  # learning rate at the peak\n"
            "  betas: [0.9, 0.95]  # AdamW's two decay rates\n");
}

// The schema is read as a configuration tree by our own reader (JSON is YAML).
TEST(Config, SchemaDescribesEveryKey) {
  const ConfigNode schema = ConfigNode::from_text(config_schema<Recipe>("Recipe"), "schema");
  EXPECT_EQ(schema.find("$schema")->as_text(), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_FALSE(schema.find("additionalProperties")->as_bool());
  ASSERT_EQ(schema.find("required")->items().size(), 1U);
  EXPECT_EQ(schema.find("required")->items()[0].as_text(), "name");
  const ConfigNode& properties = *schema.find("properties");
  EXPECT_EQ(properties.keys().size(), 11U);
  EXPECT_EQ(properties.find("steps")->find("type")->as_text(), "integer");
  EXPECT_EQ(properties.find("steps")->find("minimum")->as_int(), 1);
  EXPECT_EQ(properties.find("steps")->find("default")->as_int(), 10);
  EXPECT_EQ(properties.find("steps")->find("description")->as_text(), "optimizer steps");
  EXPECT_EQ(properties.find("mode")->find("enum")->items()[1].as_text(), "bitwise");
  EXPECT_EQ(properties.find("train")->find("anyOf")->items().size(), 2U);
  const ConfigNode& betas = *properties.find("optimizer")->find("properties")->find("betas");
  EXPECT_EQ(betas.find("items")->find("exclusiveMaximum")->as_double(), 1);
}

TEST(Config, HostileDocumentsAreRefused) {
  EXPECT_NE(message_of("a: &x [1]\nb: *x\n").find("r.yaml:1: anchors"), std::string::npos);
  EXPECT_NE(message_of("a: *x\n").find("r.yaml:1: "), std::string::npos);
  EXPECT_NE(message_of(std::string(201, '[') + std::string(201, ']')).find("nested deeper"), std::string::npos);
  EXPECT_FALSE(message_of(std::string(100000, '[')).empty());
  EXPECT_FALSE(message_of(std::string(100000, '{')).empty());
  EXPECT_NE(message_of(std::string(ConfigNode::max_bytes + 1, 'a')).find("bytes long"), std::string::npos);
  EXPECT_EQ(message_of("name: a\nsteps: 1\nname: b\n"), "r.yaml:3: the key 'name' is written twice");
  EXPECT_EQ(message_of("name: a\n---\nname: b\n"),
            "r.yaml:2: a second YAML document starts here; a configuration must be one document");
  EXPECT_NE(message_of("? [a]\n: b\n").find("a key must be plain text"), std::string::npos);
  EXPECT_NE(message_of("name: \xff\n").find("not UTF-8"), std::string::npos);
  for (const char* unfinished : {"name: 'a\n", "name: 'a", "name: \"a\n", "name: [a\n"}) {
    EXPECT_NE(message_of(unfinished).find("not valid YAML"), std::string::npos) << unfinished;
  }
  EXPECT_NE(message_of("name: !!python/object:os.system a\n").find("tag"), std::string::npos);
  std::string many = "prompts: [";
  for (int i = 0; i < ConfigNode::max_nodes; ++i) many += "a,";
  EXPECT_NE(message_of(many + "]").find("more than"), std::string::npos);
}

TEST(Config, FilesAreReadAndErrorsNameThem) {
  const Scratch scratch;
  write_file(scratch / "r.yaml", "name: a\nsteps: x\n");
  EXPECT_EQ(ConfigNode::from_file(scratch / "r.yaml").find("steps")->where(), (scratch / "r.yaml").string() + ":2");
  try {
    ConfigNode::from_file(scratch / "none.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
  }
}

}  // namespace
}  // namespace ingot

// Chat templates compared with Jinja2, and the spans of assistant answers.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/text/golden.h"

namespace ingot::text {
namespace {

using nlohmann::ordered_json;

const ordered_json& golden() {
  static const ordered_json json = read_golden_json("templates.json");
  return json;
}

ChatTemplate named(const std::string& name) { return {golden()["templates"][name].get<std::string>(), name}; }

ChatOptions options_of(const ordered_json& conversation) {
  ChatOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.add_generation_prompt = conversation.value("add_generation_prompt", false);
  if (conversation.contains("date_string")) {
    options.extra_variables = ordered_json{{"date_string", conversation["date_string"]}}.dump();
  }
  return options;
}

ordered_json tools_of(const ordered_json& conversation) { return conversation.value("tools", ordered_json(nullptr)); }

std::vector<std::string> answers(const ChatSpans& spans) {
  std::vector<std::string> texts;
  for (const auto& [begin, end] : spans.assistant) texts.push_back(spans.text.substr(begin, end - begin));
  return texts;
}

ordered_json chat(const std::vector<std::pair<std::string, std::string>>& turns) {
  ordered_json messages = ordered_json::array();
  for (const auto& [role, content] : turns) messages.push_back({{"role", role}, {"content", content}});
  return messages;
}

TEST(ChatTemplate, RendersLikeJinja2) {
  size_t num_texts = 0;
  for (const auto& row : golden()["rendered"]) {
    const auto name = row["template"].get<std::string>();
    const ordered_json& conversation = golden()["conversations"][row["conversation"].get<size_t>()];
    const ChatTemplate chat_template = named(name);
    const auto render = [&] {
      return chat_template.render(conversation["messages"], tools_of(conversation), options_of(conversation));
    };
    if (!row.contains("text")) {
      const Error error = error_of(render);
      EXPECT_NE(error.kind(), ErrorKind::internal) << row;
      // A message that the template raises is reported unchanged.
      EXPECT_NE(error.message().find(row.value("refusal", "")), std::string::npos) << row << ": " << error.message();
      continue;
    }
    ++num_texts;
    try {
      EXPECT_EQ(render().text, row["text"].get<std::string>()) << name << " " << row["conversation"];
    } catch (const Error& error) {
      ADD_FAILURE() << row << ": " << error.message();
    }
    if (row.contains("spans")) {
      const ChatSpans spans =
          chat_template.render_spans(conversation["messages"], tools_of(conversation), options_of(conversation));
      EXPECT_EQ(spans.assistant, (row["spans"].get<std::vector<std::pair<size_t, size_t>>>())) << row;
    }
  }
  EXPECT_GT(num_texts, 150u);
}

TEST(ChatTemplate, SpansAreAnswersWithTheirEndOfTurn) {
  const ordered_json messages =
      chat({{"system", "S"}, {"user", "U1"}, {"assistant", "A1"}, {"user", "U2"}, {"assistant", " A2 \n"}});
  ChatOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  using Texts = std::vector<std::string>;
  EXPECT_EQ(answers(named("chatml_smollm2").render_spans(messages, nullptr, options)),
            (Texts{"A1<|im_end|>", " A2 \n<|im_end|>"}));
  EXPECT_EQ(answers(named("qwen25").render_spans(messages, nullptr, options)),
            (Texts{"A1<|im_end|>", " A2 \n<|im_end|>"}));
  EXPECT_EQ(answers(named("llama3").render_spans(messages, nullptr, options)), (Texts{"A1<|eot_id|>", "A2<|eot_id|>"}));
  EXPECT_EQ(answers(named("llama31").render_spans(messages, nullptr, options)),
            (Texts{"A1<|eot_id|>", "A2<|eot_id|>"}));
  EXPECT_EQ(answers(named("llama2").render_spans(messages, nullptr, options)), (Texts{" A1 </s>", " A2 </s>"}));
  EXPECT_EQ(answers(named("generation").render_spans(messages, nullptr, options)), (Texts{"A1<end>", " A2 \n<end>"}));

  options.add_generation_prompt = true;
  const ChatSpans prompted = named("llama3").render_spans(messages, nullptr, options);
  EXPECT_EQ(prompted.text, named("llama3").render(messages, nullptr, options).text);
  EXPECT_EQ(answers(prompted), (Texts{"A1<|eot_id|>", "A2<|eot_id|>"}));
}

TEST(ChatTemplate, TemplatesThatRewriteTurnsHaveNoSpans) {
  const ordered_json messages = chat({{"user", "a"},
                                      {"assistant", "<think>\nx\n</think>\n\nb"},
                                      {"user", "c"},
                                      {"assistant", "<think>\ny\n</think>\n\nd"}});
  const Error error = error_of([&] { named("thinking").render_spans(messages, nullptr, {}); });
  EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  EXPECT_NE(error.message().find("thinking"), std::string::npos);
}

TEST(ChatTemplate, RenderJsonRejectsInvalidArguments) {
  const ChatTemplate chat_template = named("chatml_smollm2");
  const std::string messages = R"([{"role":"system","content":"x"}])";
  EXPECT_EQ(chat_template.render_json(messages, "", {}).text, "<|im_start|>system\nx<|im_end|>\n");
  EXPECT_EQ(error_of([&] { chat_template.render_json("[{", "", {}); }).kind(), ErrorKind::corrupt);
  EXPECT_EQ(error_of([&] { chat_template.render_json("{}", "", {}); }).kind(), ErrorKind::usage);
  EXPECT_EQ(error_of([&] { chat_template.render_json("[3]", "", {}); }).kind(), ErrorKind::usage);
  EXPECT_EQ(error_of([&] { chat_template.render_json(messages, "{}", {}); }).kind(), ErrorKind::usage);
  ChatOptions options;
  options.extra_variables = "[]";
  EXPECT_EQ(error_of([&] { chat_template.render_json(messages, "", options); }).kind(), ErrorKind::usage);
}

}  // namespace
}  // namespace ingot::text

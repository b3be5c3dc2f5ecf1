// Any bytes as a chat template: it renders a short conversation within its limits or gives an ingot::Error.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "text/jinja.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto variables = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "system", "content": " Be short. "}, {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "Hello", "tool_calls": [{"name": "f", "arguments": {"x": 1.5}}]}],
          "tools": null, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true})");
  try {
    const ingot::text::jinja::Template source(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    source.render(variables, {.max_steps = 20'000, .max_output = 1 << 16, .now = 0});
  } catch (const ingot::Error& e) {
    if (e.kind() == ingot::ErrorKind::internal) __builtin_trap();
  }
  return 0;
}

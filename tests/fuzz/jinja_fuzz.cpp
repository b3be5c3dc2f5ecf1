// Any bytes as a chat template, rendered with a short conversation.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "text/jinja.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto variables = nlohmann::ordered_json::parse(
      R"({"messages":[{"role":"user","content":" a b\n"},{"role":"assistant","content":"c"}],"tools":null,
          "add_generation_prompt":true,"bos_token":"<s>","items":[1,2.5,"x",null],"d":{"a":{"b":1}}})");
  ingot::text::jinja::RenderOptions options;
  options.max_steps = 20000;
  try {
    const ingot::text::jinja::Template parsed(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    static_cast<void>(parsed.render(variables, options));
  } catch (const ingot::Error& e) {
    if (e.kind() == ingot::ErrorKind::internal) __builtin_trap();
  }
  return 0;
}

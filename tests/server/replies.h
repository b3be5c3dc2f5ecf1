// Requests for chat completions, and the texts of streamed replies.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/tiny_server.h"

namespace ingot::server {

inline Json chat(const std::string& words, Json more = Json::object()) {
  more["model"] = "org/tiny";
  more["messages"] = {{{"role", "user"}, {"content", words}}};
  if (!more.contains("temperature")) more["temperature"] = 0;
  return more;
}

// The text of each choice of a stream, joined. Every chunk's form is checked.
inline std::vector<std::string> joined(const std::vector<Json>& events, size_t choices, const char* object) {
  std::vector<std::string> texts(choices);
  std::vector<bool> ended(choices, false);
  for (const Json& event : events) {
    EXPECT_EQ(event.at("object"), object);
    EXPECT_EQ(event.at("id"), events.front().at("id"));
    EXPECT_EQ(event.at("created"), events.front().at("created"));
    for (const Json& choice : event.at("choices")) {
      const size_t index = choice.at("index").get<size_t>();
      EXPECT_FALSE(ended[index]);
      const Json& holder = choice.contains("delta") ? choice["delta"] : choice;
      const char* key = choice.contains("delta") ? "content" : "text";
      if (holder.contains(key)) texts[index] += holder[key].get<std::string>();
      ended[index] = !choice.at("finish_reason").is_null();
    }
  }
  for (const bool end : ended) EXPECT_TRUE(end);
  return texts;
}

}  // namespace ingot::server

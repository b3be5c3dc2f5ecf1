// /v1/responses: its fields, answers and events.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/api_error.h"
#include "server/requests.h"
#include "tests/server/tiny_server.h"

namespace ingot::server {
namespace {

constexpr const char* route = "/v1/responses";

Json asked(const Json& more = Json::object()) {
  Json body = {{"model", "org/tiny"}, {"input", "hello"}, {"temperature", 0}, {"max_output_tokens", 12}};
  body.update(more);
  return body;
}

// The events of a stream. Checks that their names equal their types, and their numbering.
std::vector<Json> events_of(TinyServer& server, Json body) {
  body["stream"] = true;
  const Answer answer = server.ask("POST", route, body.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  std::vector<Json> events;
  std::string_view rest = answer.body;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    const std::string_view event = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    const size_t line = event.find("\ndata: ");
    EXPECT_TRUE(event.starts_with("event: ")) << event;
    if (line == std::string_view::npos) {
      ADD_FAILURE() << "no data: " << event;
      return events;
    }
    events.push_back(Json::parse(event.substr(line + 7)));
    EXPECT_EQ(events.back()["type"], event.substr(7, line - 7));
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
  }
  return events;
}

// The event types, with repetitions removed.
std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (types.empty() || types.back() != type || !type.ends_with(".delta")) types.push_back(type);
  }
  return types;
}

Json without_names(Json response) {
  for (const char* key : {"id", "created_at", "completed_at"}) response.erase(key);
  for (Json& item : response["output"]) {
    item.erase("id");
    item.erase("call_id");
  }
  return response;
}

TEST(Responses, TextEqualsTheModels) {
  TinyServer server;
  const std::vector<int32_t> prompt = server.chat_prompt("hello");
  const std::vector<int32_t> ids = server.greedy(prompt, 12);
  const Json reply = server.post(route, asked());
  EXPECT_EQ(reply["object"], "response");
  EXPECT_TRUE(reply["id"].get<std::string>().starts_with("resp_"));
  ASSERT_EQ(reply["output"].size(), 1U);
  const Json& message = reply["output"][0];
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_TRUE(message["id"].get<std::string>().starts_with("msg_"));
  ASSERT_EQ(message["content"].size(), 1U);
  EXPECT_EQ(message["content"][0]["type"], "output_text");
  EXPECT_EQ(message["content"][0]["text"], server.text_of(ids));
  EXPECT_TRUE(message["content"][0]["annotations"].empty());
  const bool is_cut = ids.size() == 12;
  EXPECT_EQ(reply["status"], is_cut ? "incomplete" : "completed");
  EXPECT_EQ(message["status"], reply["status"]);
  EXPECT_EQ(reply["incomplete_details"].is_null(), !is_cut);
  EXPECT_EQ(reply["usage"]["input_tokens"], prompt.size());
  EXPECT_EQ(reply["usage"]["output_tokens"], ids.size());
  EXPECT_EQ(reply["usage"]["total_tokens"], prompt.size() + ids.size());
  EXPECT_EQ(reply["store"], false);
  EXPECT_EQ(reply["max_output_tokens"], 12);
  EXPECT_EQ(reply["tool_choice"], "auto");
  EXPECT_TRUE(reply["tools"].empty() && reply["error"].is_null() && reply["previous_response_id"].is_null());
}

TEST(Responses, ARegularEndIsComplete) {
  TinyServer server;
  server.masks.text = R"({"a":1})";
  const Json format = {{"type", "json_schema"}, {"name", "n"}, {"schema", {{"type", "object"}}}, {"strict", true}};
  const Json reply = server.post(route, asked({{"text", {{"format", format}}}}));
  EXPECT_EQ(reply["status"], "completed");
  EXPECT_TRUE(reply["completed_at"].is_number());
  EXPECT_EQ(reply["output"][0]["content"][0]["text"], server.masks.text);
  EXPECT_EQ(reply["text"]["format"], format);
  EXPECT_EQ(server.masks.schemas.lock()->back(), R"({"type":"object"})");
  const Json any = server.post(route, asked({{"text", {{"format", {{"type", "json_object"}}}}}}));
  EXPECT_EQ(any["output"][0]["content"][0]["text"], "{}");
}

TEST(Responses, TextHasItsEvents) {
  TinyServer server;
  const Json body = asked({{"temperature", 1.2}, {"seed", 4}, {"metadata", {{"a", "b"}}}});
  const Json whole = server.post(route, body);
  const std::vector<Json> events = events_of(server, body);
  const std::string last = whole["status"] == "completed" ? "response.completed" : "response.incomplete";
  const std::vector<std::string> expected = {"response.created",
                                             "response.in_progress",
                                             "response.output_item.added",
                                             "response.content_part.added",
                                             "response.output_text.delta",
                                             "response.output_text.done",
                                             "response.content_part.done",
                                             "response.output_item.done",
                                             last};
  ASSERT_EQ(types_of(events), expected);
  std::string text;
  for (const Json& event : events) {
    if (event["type"] == "response.output_text.delta") text += event["delta"].get<std::string>();
    EXPECT_EQ(event.value("item_id", events[2]["item"]["id"]), events[2]["item"]["id"]);
    EXPECT_EQ(event.value("output_index", 0), 0);
    EXPECT_EQ(event.value("content_index", 0), 0);
  }
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(events[events.size() - 4]["text"], text);
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_TRUE(events[0]["response"]["output"].empty());
  EXPECT_EQ(events[0]["response"]["id"], events.back()["response"]["id"]);
  EXPECT_EQ(without_names(events.back()["response"]), without_names(whole));
  EXPECT_EQ(whole["metadata"]["a"], "b");
}

TEST(Responses, LogprobsAreReported) {
  TinyServer server;
  const Json body = asked({{"include", {"message.output_text.logprobs"}}, {"top_logprobs", 2}});
  const Json whole = server.post(route, body);
  const Json& tokens = whole["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(tokens.size(), whole["usage"]["output_tokens"].get<size_t>());
  for (const Json& token : tokens) {
    EXPECT_LE(token["logprob"].get<double>(), 0);
    EXPECT_EQ(token["top_logprobs"].size(), 2U);
  }
  Json streamed = Json::array();
  for (const Json& event : events_of(server, body)) {
    if (event["type"] != "response.output_text.delta") continue;
    for (const Json& token : event["logprobs"]) streamed.push_back(token);
  }
  EXPECT_EQ(streamed, tokens);
  EXPECT_EQ(server.post(route, asked({{"top_logprobs", 2}}), 400)["error"]["param"], "top_logprobs");
  // The stream's final event contains all of them.
  server.served.context = int64_t{1} << 20;
  Json large = body;
  large["stream"] = true;
  large["top_logprobs"] = 20;
  large.erase("max_output_tokens");
  EXPECT_EQ(server.post(route, large, 400)["error"]["param"], "top_logprobs");
}

TEST(Responses, ItemsBecomeMessages) {
  const ResponsesRequest request = parse_responses(R"({"model": "m", "instructions": "Be short.", "input": [
    {"role": "developer", "content": "d"},
    {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
     "content": [{"type": "output_text", "text": "c", "annotations": [], "logprobs": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}", "status": "completed"},
    {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
    {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"}],
    "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true},
      {"type": "function", "name": "g"}],
    "tool_choice": {"type": "function", "name": "g"}})");
  EXPECT_EQ(Json::parse(request.messages), Json::parse(R"([
    {"role": "system", "content": "Be short."},
    {"role": "system", "content": "d"},
    {"role": "user", "content": "a\nb"},
    {"role": "assistant", "content": "c", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
      {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "content": "1", "tool_call_id": "c1"},
    {"role": "tool", "content": "2", "tool_call_id": "c2"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "c3", "type": "function", "function": {"name": "f", "arguments": {}}}]}])"));
  EXPECT_EQ(Json::parse(request.tools), Json::parse(R"([
    {"type": "function", "function":
      {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}},
    {"type": "function", "function": {"name": "g"}}])"));
  ASSERT_EQ(request.tool_list.size(), 1U);
  EXPECT_EQ(request.tool_list[0].name, "g");
  EXPECT_EQ(request.tool_choice, ToolChoice::required);
}

TEST(Responses, ToolCallsAreItems) {
  TinyServer server;
  const Json tools = {{{"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}},
                      {{"type", "function"}, {"name", "g"}}};
  const Json named = {{"type", "function"}, {"name", "f"}};
  const Json allowed = {{"type", "allowed_tools"}, {"mode", "required"}, {"tools", Json::array({named})}};
  const std::vector<std::string> expected = {"response.created",
                                             "response.in_progress",
                                             "response.output_item.added",
                                             "response.function_call_arguments.delta",
                                             "response.function_call_arguments.done",
                                             "response.output_item.done",
                                             "response.completed"};
  for (const Json& choice : {Json("required"), named, allowed}) {
    const Json body = asked({{"tools", tools}, {"tool_choice", choice}, {"max_output_tokens", 100}});
    const Json reply = server.post(route, body);
    EXPECT_EQ(reply["status"], "completed");
    ASSERT_EQ(reply["output"].size(), 1U) << reply;
    const Json& call = reply["output"][0];
    EXPECT_EQ(call["type"], "function_call");
    EXPECT_EQ(call["name"], "f");
    EXPECT_EQ(call["arguments"], R"({"x":1})");
    EXPECT_EQ(call["status"], "completed");
    EXPECT_TRUE(call["call_id"].get<std::string>().starts_with("call_"));
    EXPECT_EQ(reply["tools"], tools);
    EXPECT_EQ(reply["tool_choice"], choice);
    const std::vector<Json> events = events_of(server, body);
    ASSERT_EQ(types_of(events), expected);
    EXPECT_EQ(events[2]["item"]["name"], "f");
    EXPECT_EQ(events[3]["delta"], R"({"x":1})");
    EXPECT_EQ(events[4]["arguments"], R"({"x":1})");
    EXPECT_EQ(events[5]["item"], events.back()["response"]["output"][0]);
  }
  const Json cut = server.post(route, asked({{"tools", tools}, {"tool_choice", named}, {"max_output_tokens", 28}}));
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
}

TEST(Responses, TextMayPrecedeCalls) {
  TinyServer server;
  server.served.tool_call_tags = true;
  // The model generates this under any schema.
  server.masks.text = R"(well <tool_call>{"name":"f","arguments":{"x":2}}</tool_call>)";
  const Json format = {{"type", "json_schema"}, {"name", "n"}, {"schema", Json::object()}};
  const Json body = asked(
      {{"tools", {{{"type", "function"}, {"name", "f"}}}}, {"text", {{"format", format}}}, {"max_output_tokens", 100}});
  const Json reply = server.post(route, body);
  ASSERT_EQ(reply["output"].size(), 2U) << reply;
  EXPECT_EQ(reply["output"][0]["content"][0]["text"], "well ");
  EXPECT_EQ(reply["output"][1]["arguments"], R"({"x":2})");
  const std::vector<Json> events = events_of(server, body);
  EXPECT_EQ(without_names(events.back()["response"]), without_names(reply));
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type.find("arguments") != std::string::npos) EXPECT_EQ(event["output_index"], 1);
    if (type.find("output_text") != std::string::npos) EXPECT_EQ(event["output_index"], 0);
  }
}

TEST(Responses, InvalidRequestsAreErrors) {
  struct Case {
    Json members;
    const char* param;
    const char* code;
  };
  const auto input = [](const Json& item) { return Json{{"input", Json::array({item})}}; };
  const auto one = [](const Json& item) { return Json::array({item}); };
  const Json image = {{"type", "input_image"}, {"image_url", "http://127.0.0.1/x"}};
  const Json nested = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const Json f = {{"type", "function"}, {"name", "f"}}, g = {{"type", "function"}, {"name", "g"}};
  const auto format = [](const Json& value) { return Json{{"text", {{"format", value}}}}; };
  const Case cases[] = {
      {{{"previous_response_id", "resp_1"}}, "previous_response_id", "unsupported_parameter"},
      {{{"conversation", "conv_1"}}, "conversation", "unsupported_parameter"},
      {{{"conversation", {{"id", "conv_1"}}}}, "conversation", "unsupported_parameter"},
      {{{"prompt", {{"id", "p"}}}}, "prompt", "unsupported_parameter"},
      {{{"store", true}}, "store", "unsupported_parameter"},
      {{{"store", 1}}, "store", "invalid_type"},
      {{{"background", true}}, "background", "unsupported_parameter"},
      {{{"truncation", "auto"}}, "truncation", "unsupported_value"},
      {{{"response_format", {{"type", "text"}}}}, "response_format", "unsupported_parameter"},
      {{{"n", 2}}, "n", "unsupported_parameter"},
      {{{"messages", Json::array()}}, "messages", "unsupported_parameter"},
      {{{"max_tokens", 2}}, "max_tokens", "unsupported_parameter"},
      {{{"max_output_tokens", 0}}, "max_output_tokens", "invalid_value"},
      {{{"input", nullptr}}, "input", "missing_required_parameter"},
      {{{"input", 3}}, "input", "invalid_type"},
      {{{"input", Json::array()}}, "input", "invalid_value"},
      {{{"include", one("file_search_call.results")}}, "include[0]", "unsupported_value"},
      {format({{"type", "xml"}}), "text.format.type", "invalid_value"},
      {format({{"type", "json_schema"}, {"name", "n"}}), "text.format.schema", "missing_required_parameter"},
      {{{"text", {{"format", {{"type", "json_object"}}}}}, {"guided_regex", "a"}}, "text.format", "invalid_value"},
      {{{"tools", one({{"type", "web_search"}})}}, "tools[0].type", "unsupported_value"},
      {{{"tools", one(nested)}}, "tools[0].name", "missing_required_parameter"},
      {{{"tool_choice", "required"}}, "tool_choice", "invalid_value"},
      {{{"tools", one(f)}, {"tool_choice", g}}, "tool_choice.name", "invalid_value"},
      {input({{"type", "item_reference"}, {"id", "msg_1"}}), "input[0].type", "unsupported_value"},
      {input({{"type", "reasoning"}, {"summary", Json::array()}}), "input[0].type", "unsupported_value"},
      {input({{"role", "robot"}, {"content", "x"}}), "input[0].role", "invalid_value"},
      {input({{"role", "user"}}), "input[0].content", "missing_required_parameter"},
      {input({{"role", "user"}, {"content", one(image)}}), "input[0].content[0].type", "unsupported_value"},
      {input({{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{"}}), "input[0].arguments",
       "invalid_value"},
      {input({{"type", "function_call_output"}, {"call_id", "c"}}), "input[0].output", "missing_required_parameter"},
      {input("x"), "input[0]", "invalid_type"},
  };
  for (const Case& c : cases) {
    const std::string body = asked(c.members).dump();
    try {
      parse_responses(body);
      ADD_FAILURE() << body << " was accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400) << body;
      EXPECT_EQ(error.param, c.param) << body;
      EXPECT_EQ(error.code, c.code) << body;
    }
  }
}

TEST(Responses, ErrorsOfTheServerAreReported) {
  TinyServer server;
  const Json too_long = server.post(route, asked({{"input", std::string(300, 'a')}}), 400)["error"];
  EXPECT_EQ(too_long["param"], "input");
  EXPECT_EQ(too_long["code"], "context_length_exceeded");
  EXPECT_EQ(server.post(route, asked({{"model", "other"}}), 404)["error"]["code"], "model_not_found");
  EXPECT_EQ(server.ask("GET", "/v1/responses/resp_1").status, 404);
  EXPECT_EQ(server.ask("GET", route).status, 405);
}

TEST(Responses, AFailureEndsTheStream) {
  TinyServer server;
  const Json format = {{"type", "json_schema"}, {"name", "n"}, {"schema", {{"break", true}}}};
  Json body = asked({{"text", {{"format", format}}}, {"max_output_tokens", 100}});
  EXPECT_EQ(server.post(route, body, 500)["error"]["type"], "server_error");
  body["stream"] = true;
  const Answer answer = server.ask("POST", route, body.dump());
  EXPECT_TRUE(answer.whole);
  if (answer.status != 200) return;  // nothing had been sent before
  const Json last = Json::parse(answer.body.substr(answer.body.rfind("data: ") + 6));
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"]["code"], "server_error");
}

}  // namespace
}  // namespace ingot::server

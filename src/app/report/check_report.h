// The report of tools/gpu_check: its lines as one table a question.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ingot::app::report {

// `lines`: one JSON object a line, as tools/gpu_check writes them: {piece, device, commit, status, part, time, seconds}
// and `result` (status finished, or wrong: it ran and what it computed is not right) or `message` (failed, unsupported,
// skipped). Of several lines of a piece the last one that has a result counts, or else the last. Returns {pieces:
// [...]} in the order in which they first came. Errors: corrupt, with the line's number, for what is not such an
// object.
nlohmann::ordered_json merge_checks(std::string_view lines, const std::string& source);

// The merged pieces as Markdown.
std::string check_page(const nlohmann::ordered_json& merged);

}  // namespace ingot::app::report

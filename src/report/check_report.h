// The report of tools/gpu_check: its result lines as one table per topic.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ingot::report {

// `lines`: one JSON object per line, as tools/gpu_check writes them: {piece, device, commit, status, part, time,
// seconds} and `result` (status finished, or wrong: it ran and computed an incorrect result) or `message` (failed,
// unsupported, skipped). Of several lines of one piece the last one with a result is used, or else the last. Returns
// {pieces: [...]} in the order of their first lines. Errors: corrupt, with the line's number, for a line that is not
// such an object.
nlohmann::ordered_json merge_checks(std::string_view lines, const std::string& source);

// Formats the merged pieces as Markdown.
std::string check_page(const nlohmann::ordered_json& merged);

}  // namespace ingot::report

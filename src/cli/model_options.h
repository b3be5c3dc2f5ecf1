// The options of every command that opens a model, and its input as token ids.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/command.h"
#include "cli/text_input.h"
#include "runtime/session.h"

namespace ingot::cli {

inline constexpr const char* dtype_help = "data type of the computation: bf16 (default), fp16 or fp32";

// Declares --model, --adapter, --device, --dtype, --weights, --compute, --threads, --tp and --pp. `with_adapter` false:
// without --adapter.
void declare(runtime::ModelOptions& options, Arguments& arguments, bool with_adapter = true);

// The input as ids. A text gets the tokenizer's special tokens.
// Errors: usage for an empty input or ids outside the vocabulary; those of Session::tokenizer.
std::vector<int32_t> encode(runtime::Session& session, const TextInput& input);

}  // namespace ingot::cli

// Hand-written equivalents of the pre-tokenizer patterns of the common model families, much faster than a regular
// expression and without backtracking.
//
// Every byte of the text is in exactly one piece, except that split_white_space and split_words drop white space. An
// invalid UTF-8 byte counts as a character that is not a letter, number or white space.
#pragma once

#include <string_view>
#include <vector>

namespace ingot::text {

// '(s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
void split_gpt2(std::string_view text, std::vector<std::string_view>& out);

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+        max_digits is 3 for Llama 3 and 1 for Qwen2.
void split_llama3(std::string_view text, int max_digits, std::vector<std::string_view>& out);

// Splits out numeric characters (char_numeric): each character by itself, or whole runs.
void split_digits(std::string_view text, bool individual, std::vector<std::string_view>& out);

// Splits at white space and drops it.
void split_white_space(std::string_view text, std::vector<std::string_view>& out);

// Runs of word characters (\w) and runs of characters that are neither word nor white space; white space is dropped.
void split_words(std::string_view text, std::vector<std::string_view>& out);

}  // namespace ingot::text

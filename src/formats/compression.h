// Whole blocks of bytes, compressed as MDS shards are: br, bz2, gz, snappy (raw block format), zstd; all but snappy may
// have a level behind a colon ("zstd:7").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingot::formats {

// The name before the colon. Errors: unsupported for another name, a level out of its range (br 0 to 11, bz2 1 to 9,
// gz 0 to 9, zstd 1 to 22) or of snappy, without saying where.
std::string compression_name(std::string_view text);

// The same bytes for the same version of the library; gz without a time. Levels that are not said: br 11, bz2 9, gz 9,
// zstd 3. Errors: those of compression_name; resource when the library cannot.
std::string compress(std::string_view kind, std::span<const std::byte> bytes);

// What was compressed: exactly `size` bytes. Memory is taken as they come, whatever `size` says. Errors: those of
// compression_name; corrupt, beginning with `source`, for damaged data and another size.
std::string decompress(std::string_view kind, std::span<const std::byte> bytes, uint64_t size,
                       const std::string& source);

}  // namespace ingot::formats

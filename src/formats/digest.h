// Digests, under the names of Python's hashlib and xxhash.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ingot::formats {

// Supported: md5, sha1, sha224, sha256, sha384, sha512, sha3_224, sha3_256, sha3_384, sha3_512, blake2b, blake2s,
// xxh32, xxh64, xxh3_64, xxh3_128, xxh128 (the same as xxh3_128).
bool is_digest(std::string_view name);

// Lower-case hex. Errors: unsupported for another name, and where the system's OpenSSL has disabled an old digest.
std::string digest_hex(std::string_view name, std::span<const std::byte> bytes);

}  // namespace ingot::formats

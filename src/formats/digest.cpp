#include "formats/digest.h"

#include <openssl/evp.h>
#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace ingot::formats {
namespace {

// Our name and OpenSSL's name.
constexpr std::array<std::pair<std::string_view, const char*>, 12> openssl_names = {{{"md5", "MD5"},
                                                                                     {"sha1", "SHA1"},
                                                                                     {"sha224", "SHA224"},
                                                                                     {"sha256", "SHA256"},
                                                                                     {"sha384", "SHA384"},
                                                                                     {"sha512", "SHA512"},
                                                                                     {"sha3_224", "SHA3-224"},
                                                                                     {"sha3_256", "SHA3-256"},
                                                                                     {"sha3_384", "SHA3-384"},
                                                                                     {"sha3_512", "SHA3-512"},
                                                                                     {"blake2b", "BLAKE2B512"},
                                                                                     {"blake2s", "BLAKE2S256"}}};
constexpr std::array<std::string_view, 5> xxhash_names = {"xxh32", "xxh64", "xxh3_64", "xxh3_128", "xxh128"};

const char* openssl_name(std::string_view name) {
  const auto* found =
      std::find_if(openssl_names.begin(), openssl_names.end(), [&](auto& n) { return n.first == name; });
  return found == openssl_names.end() ? nullptr : found->second;
}

std::string xxhash_hex(std::string_view name, std::span<const std::byte> bytes) {
  if (name == "xxh32") return fmt::format("{:08x}", XXH32(bytes.data(), bytes.size(), 0));
  if (name == "xxh64") return fmt::format("{:016x}", XXH64(bytes.data(), bytes.size(), 0));
  if (name == "xxh3_64") return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

bool is_digest(std::string_view name) {
  return openssl_name(name) != nullptr ||
         std::find(xxhash_names.begin(), xxhash_names.end(), name) != xxhash_names.end();
}

std::string digest_hex(std::string_view name, std::span<const std::byte> bytes) {
  if (!is_digest(name)) throw_error(ErrorKind::unsupported, "the hash '{}' is not known", name);
  const char* openssl = openssl_name(name);
  if (openssl == nullptr) return xxhash_hex(name, bytes);
  const EVP_MD* kind = EVP_get_digestbyname(openssl);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (kind == nullptr || EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, kind, nullptr) != 1) {
    throw_error(ErrorKind::unsupported, "this system's OpenSSL does not compute the hash '{}'", name);
  }
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace ingot::formats

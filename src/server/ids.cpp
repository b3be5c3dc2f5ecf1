#include "server/ids.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include "base/error.h"

namespace ingot::server {

std::string make_id(const char* prefix) {
  std::array<unsigned char, 12> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw_error(ErrorKind::unavailable, "the system gives no random bytes");
  }
  std::string id = prefix;
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace ingot::server

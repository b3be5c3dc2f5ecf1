#include "server/address.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot::server {
namespace {

TEST(Address, GroupsClientsByAddressOrNetwork) {
  EXPECT_EQ(client_of("10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(client_of("::ffff:10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(client_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(client_of("2001:db8:1:2:ffff::1"), client_of("2001:db8:1:2::9"));
  EXPECT_NE(client_of("2001:db8:1:3::1"), client_of("2001:db8:1:2::1"));
  EXPECT_THROW(client_of("localhost"), Error);
}

TEST(Address, RecognisesLoopback) {
  EXPECT_TRUE(is_loopback("127.1.2.3"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("192.168.0.1"));
}

}  // namespace
}  // namespace ingot::server

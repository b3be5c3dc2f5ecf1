// Time: seconds for measuring, text for people and logs.
#pragma once

#include <string>

namespace ingot {

// Seconds on a monotonic clock with an arbitrary zero.
double steady_seconds();

// Coordinated universal time now, "2026-11-21T05:13:24Z".
std::string utc_timestamp();

}  // namespace ingot

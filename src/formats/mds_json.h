// JSON of MDS files, as Python's json.dumps(value, sort_keys=True) writes it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "formats/mds.h"

namespace ingot::formats {

std::string python_json(const nlohmann::json& value);

// The part of a shard's description that both its file and the index contain.
nlohmann::json mds_config_json(const MdsShardInfo& shard);

}  // namespace ingot::formats

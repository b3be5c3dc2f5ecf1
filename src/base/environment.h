// The environment variables that Ingot reads, in one table. All of src/ reads them through environment(), so that the
// table, and docs/environment.md, which a test compares with it, is complete.
#pragma once

#include <span>

namespace ingot {

struct EnvironmentVariable {
  const char* name;
  const char* meaning;  // one line, Markdown
};

// Sorted by name.
std::span<const EnvironmentVariable> environment_variables();

// The variable's value, or null if it is not set; valid until the environment is changed. An empty value is a value.
// ErrorKind::internal for a name that is not in the table.
const char* environment(const char* name);

}  // namespace ingot

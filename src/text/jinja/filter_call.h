// The arguments of a filter call, and the filters defined outside of filters.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/context.h"
#include "text/jinja/library.h"

namespace ingot::text::jinja {

// The input value and the arguments of a filter.
struct FilterCall {
  Context& context;
  const std::string& name;
  const Value& value;
  const Arguments& arguments;

  std::vector<Value> bind(const std::vector<std::string_view>& names, size_t num_required = 0) const {
    return jinja::bind(context, "the filter " + name, arguments, names, num_required);
  }
  TaintedString text() const { return to_text(context, value); }
};

inline bool given(const Value& value) { return !is<Undefined>(value); }
inline bool flag(const Value& value, bool fallback) { return given(value) ? truth(value) : fallback; }

// numbers.cpp
Value absolute(const FilterCall& call);
Value round(const FilterCall& call);
Value to_float(const FilterCall& call);
Value to_int(const FilterCall& call);

}  // namespace ingot::text::jinja

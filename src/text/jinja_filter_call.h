// The call of a filter, and the filters that have files of their own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_context.h"
#include "text/jinja_library.h"

namespace ingot::text::jinja {

// What a filter gets: the value and how to bind its arguments.
struct FilterCall {
  Context& context;
  const std::string& name;
  const Value& value;
  const Arguments& arguments;

  std::vector<Value> bind(const std::vector<std::string_view>& names, size_t num_required = 0) const {
    return jinja::bind(context, "the filter " + name, arguments, names, num_required);
  }
  MarkedString text() const { return to_text(context, value); }
};

inline bool given(const Value& value) { return !is<Undefined>(value); }
inline bool flag(const Value& value, bool fallback) { return given(value) ? truth(value) : fallback; }

// jinja_numbers.cpp
Value absolute(const FilterCall& call);
Value round(const FilterCall& call);
Value to_float(const FilterCall& call);
Value to_int(const FilterCall& call);

}  // namespace ingot::text::jinja

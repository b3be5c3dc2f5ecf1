#include "grammar/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "grammar/regex.h"

namespace ingot::grammar {

namespace {

// RFC 3339, section 5.6 and appendix A. The year 0, which many programs reject, and leap seconds are left out.
constexpr const char* date =
    "(?!0000)(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
    "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
constexpr const char* time =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr const char* duration =
    "P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)"
    "(?:T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))?|"
    "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))";

// RFC 2673, section 3.2; RFC 4291, section 2.2.
constexpr const char* ipv4 = "(?:(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";

std::string ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  const std::string last = fmt::format("(?:{0}:{0}|{1})", h, ipv4);
  std::string all = fmt::format("(?:{}:){{6}}{}|::(?:{}:){{5}}{}", h, last, h, last);
  for (int before = 1; before <= 5; ++before) {  // number of groups before the ::
    all += fmt::format("|(?:{0}:){{0,{1}}}{0}::(?:{0}:){{{2}}}{3}", h, before - 1, 5 - before, last);
  }
  all += fmt::format("|(?:{0}:){{0,5}}{0}::{0}|(?:{0}:){{0,6}}{0}::|::{0}|::", h);
  for (int groups_after = 0; groups_after < 5; ++groups_after)
    all += fmt::format("|::(?:{}:){{{}}}{}", h, groups_after, last);
  return "(?:" + all + ")";
}

// RFC 1123, section 2.1, without two hyphens in a row, which only punycode labels may have.
TermId hostname(TermPool& terms) {
  const auto regex = [&](std::string_view text) { return whole_pattern_language(terms, text); };
  const TermId label = terms.both(regex("[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"), regex("[A-Za-z0-9-]{1,63}"));
  const TermId name = terms.sequence(label, terms.repeat(terms.sequence(terms.byte('.'), label), 0, unlimited));
  return terms.both(name, regex("[A-Za-z0-9.-]{1,253}"));
}

TermId email(TermPool& terms) {
  const auto regex = [&](std::string_view text) { return whole_pattern_language(terms, text); };
  const TermId local =
      terms.both(regex("[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"), regex("[!-~]{1,64}"));
  return terms.sequence({local, terms.byte('@'), hostname(terms)});
}

// RFC 3986, appendix A.
struct Uri {
  std::string pchar = "(?:[A-Za-z0-9\\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})";
  std::string authority = fmt::format(
      "(?:(?:[A-Za-z0-9\\-._~!$&'()*+,;=:]|%[0-9A-Fa-f]{{2}})*@)?"
      "(?:(?:[A-Za-z0-9\\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{{2}})*|\\[{}\\])(?::\\d*)?",
      ipv6());
  std::string rooted = fmt::format("/(?:{0}+(?:/{0}*)*)?", pchar);
  std::string tail = fmt::format("(?:\\?(?:{0}|[/?])*)?(?:#(?:{0}|[/?])*)?", pchar);

  std::string absolute() const {
    return fmt::format("[A-Za-z][A-Za-z0-9+.-]*:(?://{0}(?:/{1}*)*|{2}|{1}+(?:/{1}*)*|){3}", authority, pchar, rooted,
                       tail);
  }
  std::string relative() const {
    return fmt::format("(?://{0}(?:/{1}*)*|{2}|(?:[A-Za-z0-9\\-._~!$&'()*+,;=@]|%[0-9A-Fa-f]{{2}})+(?:/{1}*)*|){3}",
                       authority, pchar, rooted, tail);
  }
};

// RFC 6570, section 2; characters above ASCII are not percent-encoded. V stands for `variable`.
constexpr const char* uri_template =
    "(?:[!#$&()*+,\\-./0-9:;=?@A-Z\\[\\]_a-z~\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}]|%[0-9A-Fa-f]{2}|"
    "\\{[+#./;?&]?V(?:,V)*\\})*";
constexpr const char* variable =
    "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(?::[1-9]\\d{0,3}|\\*)?";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Regular expressions that are valid in ECMA-262 and every other dialect: groups only as ( ) and (?: ), nested at most
// twice, ASCII only.
std::string regular_expression() {
  const std::string escape = "\\\\[dDwWsSnrtfv^$.*+?()\\[\\]{}|/\\\\]";
  const std::string character = "[ !\"#%&',/0-9:;<=>@A-Z_`a-z~\\-]";
  const std::string range =
      "(?:0-9|a-z|A-Z|a-f|A-F|\\\\[dwsnrt\\]\\[\\\\/.+*?()\\-]|[ !\"#%&',/0-9:;<=>@A-Z_`a-z~.+*?()|$])";
  const std::string atom = "(?:" + escape + "|" + character + "|\\.|\\[\\^?" + range + "+\\])";
  const std::string quantifier = "(?:[*+?]|\\{\\d{1,3},?\\}|\\{\\d,[1-9]\\d\\}|\\{0,\\d\\}|\\{1,[1-9]\\})?";
  std::string sequence = "(?:" + atom + quantifier + ")*";
  for (int depth = 0; depth < 2; ++depth) {
    const std::string group = fmt::format(R"(\((?:\?:)?{0}(?:\|{0})*\))", sequence);
    sequence = fmt::format("(?:(?:{}|{}){})*", atom, group, quantifier);
  }
  const std::string anchored = "\\^?" + sequence + "\\$?";
  return anchored + "(?:\\|" + anchored + ")*";
}

constexpr std::string_view names[] = {
    "date",        "time",          "date-time", "duration",     "email", "idn-email",
    "hostname",    "idn-hostname",  "ipv4",      "ipv6",         "uri",   "uri-reference",
    "iri",         "iri-reference", "uuid",      "json-pointer", "regex", "relative-json-pointer",
    "uri-template"};

}  // namespace

bool is_format(std::string_view name) { return std::find(std::begin(names), std::end(names), name) != std::end(names); }

std::optional<Format> format_named(TermPool& terms, std::string_view name) {
  const auto regex = [&](std::string_view text) { return whole_pattern_language(terms, text); };
  if (name == "date") return Format{regex(date), false};
  if (name == "time") return Format{regex(time), false};
  if (name == "date-time") return Format{regex(fmt::format("(?:{})T(?:{})", date, time)), false};
  if (name == "duration") return Format{regex(duration), false};
  if (name == "ipv4") return Format{regex(ipv4)};
  if (name == "ipv6") return Format{regex(ipv6())};
  if (name == "uuid") return Format{regex("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")};
  if (name == "hostname" || name == "idn-hostname") return Format{hostname(terms), false};
  if (name == "email" || name == "idn-email") return Format{email(terms), false};
  if (name == "uri") return Format{regex(Uri().absolute())};
  if (name == "iri") return Format{regex(Uri().absolute()), false};
  if (name == "uri-reference") return Format{regex(fmt::format("{}|{}", Uri().absolute(), Uri().relative()))};
  if (name == "iri-reference") return Format{regex(fmt::format("{}|{}", Uri().absolute(), Uri().relative())), false};
  if (name == "json-pointer") return Format{regex("(?:/(?:[^~/]|~[01])*)*")};
  if (name == "relative-json-pointer") return Format{regex("[0-9](?:#|(?:/(?:[^~/]|~[01])*)+)"), false};
  if (name == "uri-template") return Format{regex(replaced(uri_template, "V", variable)), false};
  if (name == "regex") return Format{regex(regular_expression()), false};
  return std::nullopt;
}

}  // namespace ingot::grammar

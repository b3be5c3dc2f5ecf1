// Which bytes of a rendered chat are content.
#include <gtest/gtest.h>

#include "tests/text/golden.h"
#include "text/chat_template.h"
#include "text/jinja/jinja.h"

namespace ingot::text {
namespace {

using nlohmann::ordered_json;

// The text with "{" before and "}" after every range.
std::string shown(const std::string& text, const ByteRanges& content) {
  std::string out;
  size_t at = 0;
  for (const auto& [begin, end] : content) {
    EXPECT_TRUE(begin < end && begin >= at && end <= text.size()) << text;
    EXPECT_TRUE(begin > at || at == 0) << "adjacent ranges: " << text;
    out += text.substr(at, begin - at) + "{" + text.substr(begin, end - begin) + "}";
    at = end;
  }
  return out + text.substr(at);
}

std::string render_shown(const std::string& source) {
  static const auto variables = ordered_json::parse(
      R"({"x": "Xyz", "s": " Xy zX ", "n": 7, "l": ["Pq", "R"], "d": {"k": "V", "n": [1, true]}, "dup": "a,b,,c"})");
  const jinja::Rendered rendered = jinja::Template(source, "test").render(variables);
  return shown(rendered.text, rendered.content);
}

TEST(TaintedString, ConcatenatesAndSlicesRanges) {
  TaintedString text("ab", Origin::author);
  text.append("cd", Origin::caller);
  text.append(TaintedString("ef", Origin::caller));
  text.append("", Origin::caller);
  text.append("gh", Origin::author);
  EXPECT_EQ(shown(text.text(), text.content()), "ab{cdef}gh");
  EXPECT_EQ(shown(text.part(3, 7).text(), text.part(3, 7).content()), "{def}g");
  EXPECT_TRUE(text.part(4, 4).content().empty());
  EXPECT_EQ(text.part(0, 2).origin(), Origin::author);
  text.append(TaintedString(text), 1, 3);
  EXPECT_EQ(shown(text.text(), text.content()), "ab{cdef}ghb{c}");
  EXPECT_EQ(clip(text.content(), 5, 10), (ByteRanges{{0, 1}, {4, 5}}));
  EXPECT_TRUE(touches(text.content(), 1, 3));
  EXPECT_FALSE(touches(text.content(), 6, 9));
  EXPECT_FALSE(touches({}, 0, 9));
}

TEST(Content, OperationsTrackContent) {
  const std::pair<const char*, const char*> cases[] = {
      {"a{{ x }}b{{ 'c' }}", "a{Xyz}bc"},
      {"{{ 'a' + x + 'b' }}|{{ 'a' ~ x ~ n ~ 'b' }}", "a{Xyz}b|a{Xyz}7b"},
      {"{% set y = '<' ~ x ~ '>' %}{{ y[1:3] }}|{{ y[0] }}{{ y[1] }}|{{ y[::-1] }}", "{Xy}|<{X}|>{zyX}<"},
      {"{{ ('<' ~ s ~ '>') | trim('<> ') }}|{{ ('- ' ~ s).strip() }}|{{ ('<' ~ s).lstrip('<') }}",
       "{Xy zX}|- { Xy zX}|{ Xy zX }"},
      {"{{ ('<' ~ x ~ '>').replace('y', '-') }}|{{ ('<a>' | replace('a', x)) }}|{{ ('ab' | replace('', x)) }}",
       "<{X}-{z}>|<{Xyz}>|{Xyz}a{Xyz}b{Xyz}"},
      {"{{ ('<' ~ x) | upper }}|{{ ('<' ~ x ~ '>').lower() }}|{{ 'role' | upper }}", "<{XYZ}|<{xyz}>|ROLE"},
      {"{{ ('ab' ~ x) | capitalize }}|{{ (x ~ 'ab') | title }}|{{ 'user' | title }}", "{Abxyz}|{Xyzab}|User"},
      {"{{ ('a,' ~ x ~ ',b').split(',') | join('-') }}|{{ l | join('+') }}|{{ '.'.join(l) }}",
       "a-{Xyz}-b|{Pq}+{R}|{Pq}.{R}"},
      {"{{ x.join(['a', 'b']) }}|{{ dup.split(',') | map('upper') | join('/') }}", "a{Xyz}b|{A}/{B}//{C}"},
      {"{% for p in ('a ' ~ s ~ 'b').split() %}[{{ p }}]{% endfor %}", "[a][{Xy}][{zX}][b]"},
      {"{% for p in ('a-' ~ x ~ '-b').rsplit('-', 1) %}[{{ p }}]{% endfor %}", "[a-{Xyz}][b]"},
      {"{% for p in ('a=' ~ x).partition('=') %}[{{ p }}]{% endfor %}{% for p in x.rpartition('y') %}[{{ p }}]"
       "{% endfor %}{% for p in x.partition('!') %}[{{ p }}]{% endfor %}",
       "[a][=][{Xyz}][{X}][{y}][{z}][{Xyz}][][]"},
      {"{% for p in ('a\n' ~ x ~ '\nb').splitlines() %}[{{ p }}]{% endfor %}", "[a][{Xyz}][b]"},
      {"{{ ('a' ~ x).removeprefix('a') }}|{{ (x ~ 'b').removesuffix('b') }}|{{ x.removeprefix('q') }}",
       "{Xyz}|{Xyz}|{Xyz}"},
      {"{{ '<%s|%d|%%>' % (x, n) }}|{{ '<%s>' | format(x) }}|{{ '<{}-{}>'.format(x, 'o') }}|{{ '{a}{{'.format(a=x) }}",
       "<{Xyz}|7|%>|<{Xyz}>|<{Xyz}-o>|{Xyz}{"},
      {"{{ (x ~ '%s') % 'o' }}|{{ x * 2 }}|{{ ('-' ~ x) * 2 }}", "{Xyz}o|{XyzXyz}|-{Xyz}-{Xyz}"},
      {"{{ ('a\n' ~ x) | indent(2, true) }}|{{ ('a\nb') | indent(x) }}", "  a\n  {Xyz}|a\n{Xyz}b"},
      {"{{ ('-' ~ x).center(6, '*') }}|{{ x.ljust(5) }}|{{ x.rjust(5, '0') }}|{{ ('-1').zfill(4) }}",
       "*-{Xyz}*|{Xyz}  |00{Xyz}|-001"},
      {"{{ x | reverse }}{{ ('a' ~ x) | list | first }}{{ ('a' ~ x) | last }}", "{zyX}a{z}"},
      {"{{ x | string | default('q') }}{{ none_such | default('q') }}{{ '' | default(x, true) }}", "{Xyz}q{Xyz}"},
      {"{{ ('<' | safe) + x }}|{{ ('&' ~ x) + ('<b>' | safe) }}", "<{Xyz}|&amp;{Xyz}<b>"},
      {"{{ d | tojson }}|{{ 'a' | tojson }}|{{ l }}|{{ ['a'] }}|{{ [x] }}",
       R"({{"k": "V", "n": [1, true]}}|{"a"}|{['Pq', 'R']}|{['a']}|{['Xyz']})"},
      {"{% for k, v in d.items() %}<{{ k }}={{ v }}>{% endfor %}", "<{k}={V}><{n}={[1, True]}>"},
      {"{% for k in dict(**d) %}<{{ k }}>{% endfor %}{{ dict(a=x).a }}{% set ns = namespace(v=x) %}{{ ns.v }}",
       "<{k}><{n}>{XyzXyz}"},
      {"{% macro m(a, b='o') %}({{ a }}{{ b }}){% endmacro %}{{ m(x) }}{{ m('i', b=x) }}", "({Xyz}o)(i{Xyz})"},
      {"{% set t %}<{{ x }}>{% endset %}{{ t }}{% filter upper %}a{{ x }}{% endfilter %}", "<{Xyz}>A{XYZ}"},
      {"{% for c in x %}{{ c }}-{% endfor %}{{ loop is defined }}", "{X}-{y}-{z}-False"},
      {"{{ n }}{{ n + 1 }}{{ 1.5 }}{{ true }}{{ none }}{{ x | length }}{{ '12' | int }}", "781.5TrueNone312"},
      {"{{ l | sort | join }}{{ l | map('lower') | unique | join }}{{ l | max }}{{ d | dictsort | length }}",
       "{PqRpqrR}2"},
      {"{{ x if x else 'q' }}{{ x and 'o' }}{{ '' or x }}{{ ['o', x][1] }}{{ {'a': x}['a'] }}{{ l[-1] }}",
       "{Xyz}o{XyzXyzXyzR}"},
      {"{{ strftime_now('<%%>') }}|{{ strftime_now(x) }}", "<%>|{Xyz}"},
      {"{{ messages is defined }}{% set _ = l.append('o') %}{{ l | last }}{{ (l + ['i']) | join('') }}",
       "Falseo{PqR}oi"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render_shown(source), expected) << source;
}

TEST(Content, ContextDependentChangesMakeTheWholeContent) {
  // The form of a final sigma depends on what follows its word, which is content.
  const jinja::Rendered rendered =
      jinja::Template("{{ ('\u0391\u03a3' ~ x) | lower }}", "test").render({{"x", "\u0391"}});
  EXPECT_EQ(rendered.text, "\u03b1\u03c3\u03b1");
  EXPECT_EQ(rendered.content, (ByteRanges{{0, 6}}));
}

TEST(Content, RolesThatAreWordsAreNotContent) {
  const ChatTemplate chat(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m.name }}{% endfor %}{{ bos_token }}"
      "{{ extra }}",
      "test");
  ChatOptions options;
  options.bos_token = "<s>";
  const ordered_json messages = {{{"role", "user"}, {"content", "a"}, {"name", "b"}},
                                 {{"role", "tool-call_2"}, {"content", ""}},
                                 {{"role", "a|>"}, {"content", ""}}};
  ChatText text = chat.render(messages, nullptr, options);
  EXPECT_EQ(shown(text.text, text.content), "<|user|>{ab}<|tool-call_2|><|{a|>}|><s>");
  options.extra_variables = R"({"extra": "e", "bos_token": "<x>"})";
  text = chat.render(ordered_json::array({{{"role", "user"}, {"content", ""}}}), nullptr, options);
  EXPECT_EQ(shown(text.text, text.content), "<|user|>{<x>e}");
}

}  // namespace
}  // namespace ingot::text

#!/usr/bin/env python3
"""Golden files of tests/text: chat templates rendered by jinja2.

    pip install jinja2
    python3 tools/reference/make_text_golden.py tests/golden/text
"""
import json
import os
import sys
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATES = {
    "chatml_smollm2":
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "llama2": """\
{#- The system text goes into the first user turn. -#}
{%- if messages and messages[0]['role'] == 'system' -%}
    {%- set turns = messages[1:] -%}
    {%- set system_text = messages[0]['content'] -%}
{%- else -%}
    {%- set turns = messages -%}
    {%- set system_text = false -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') -}}
    {%- endif -%}
    {%- if loop.index0 == 0 and system_text is not false -%}
        {%- set content = '<<SYS>>\\n' + system_text + '\\n<</SYS>>\\n\\n' + message['content'] -%}
    {%- else -%}
        {%- set content = message['content'] -%}
    {%- endif -%}
    {%- if message['role'] == 'user' -%}
        {{- bos_token + '[INST] ' + content | trim + ' [/INST]' -}}
    {%- elif message['role'] == 'assistant' -%}
        {{- ' ' + content | trim + ' ' + eos_token -}}
    {%- endif -%}
{%- endfor -%}
""",
    "llama3":
        "{% set loop_messages = messages %}{% for message in loop_messages %}"
        "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}"
        "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    "llama31": """\
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools is not none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content'] | trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no first user message to put the tools into") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {{- "Here are functions you may call. Answer with JSON for a call.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("Only one tool call at once") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "qwen25": """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "generation": """\
{%- for message in messages %}
{%- if message.role == 'assistant' %}
A: {% generation %}{{ message.content }}<end>{% endgeneration %}

{% else %}
Q: {{ message.content }}
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}A: {% endif %}
""",
    "thinking": """\
{%- set ns = namespace(last_query=-1, multi=true) -%}
{%- for message in messages[::-1] -%}
    {%- set index = (messages | length - 1) - loop.index0 -%}
    {%- if ns.multi and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>')) -%}
        {%- set ns.multi = false -%}
        {%- set ns.last_query = index -%}
    {%- endif -%}
{%- endfor -%}
{%- macro show(text, level=1) -%}{{ '#' * level }} {{ text | trim | upper }}{%- endmacro -%}
{%- for message in messages -%}
    {%- if message.content is not string -%}{%- continue -%}{%- endif -%}
    {%- set content = message.content -%}
    {%- set reasoning = '' -%}
    {%- if '</think>' in content -%}
        {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
    {%- endif -%}
    {%- if loop.index0 > ns.last_query and reasoning -%}
        {{- show(message.role, level=2) ~ ' <think>\\n' ~ reasoning.strip('\\n') ~ '\\n</think>\\n\\n' ~ content ~ '\\n' -}}
    {%- else -%}
        {{- show(message.role) ~ ' ' ~ content ~ '\\n' -}}
    {%- endif -%}
{%- endfor -%}
""",
}

# Small templates, one for each feature; rendered with the variables of `feature_variables`.
FEATURES = [
    "plain text\n", "plain text\n\n", "a{# comment #}b", "a\n  {# comment #}\nb", "{% if true %}\nx\n{% endif %}\ny", "  {% if true %}\n  x\n  {% endif %}\n",
    "a {%- if true -%} b {%- endif -%} c", "a {{- 'x' -}} b", "  {%+ if true %}x{% endif %}", "{% if true +%}\nx{% endif %}", "{% raw %}{{ x }}{% endraw %}", "a\r\nb\r\n",
    "{{ 'a\\nb\\t\\'\\\"\\\\' }}", "{{ \"it's\" }}", "{{ 1 + 2 * 3 - 4 // 3 }}", "{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }}", "{{ 2 ** 10 }} {{ 2 ** -1 }}", "{{ 1.0 }} {{ 2.5e3 }} {{ 1e20 }} {{ 1e-7 }} {{ 0.1 + 0.2 }}",
    "{{ 'a' ~ 1 ~ none ~ true }}", "{{ true }} {{ false }} {{ none }} {{ True }} {{ None }}", "{{ undefined_name }}|{{ undefined_name is defined }}|{{ undefined_name is undefined }}", "{{ [1, 'a', none, 2.0, [true]] }} {{ {'k': 'v', 'n': 1} }} {{ (1, 'x') }} {{ (1,) }} {{ [] }} {{ {} }}", "{{ ['it\\'s', 'q\"', 'n\\n'] }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1, 2] == [1, 2] }} {{ true == 1 }}", "{{ 'a' in 'cab' }} {{ 'x' not in 'cab' }} {{ 2 in [1, 2] }} {{ 'k' in {'k': 1} }}", "{{ not true or true and false }} {{ 0 or 'x' }} {{ 1 and 'y' }} {{ none or [] }}",
    "{{ 'yes' if flag else 'no' }} {{ 'yes' if not flag }}|{{ 'a' if false else 'b' if false else 'c' }}", "{% for i in range(3) %}{{ i }}{{ ',' if not loop.last }}{% endfor %}", "{% for i in range(1, 10, 3) %}{{ loop.index }}:{{ loop.index0 }}:{{ i }}:{{ loop.first }}:{{ loop.last }}:{{ loop.length }}:{{ loop.revindex }}:{{ loop.revindex0 }} {% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}", "{% for i in items if i is not none %}{{ loop.index }}{{ i }} {% endfor %}", "{% for i in [1,2,3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}", "{% for c in 'h\u00e9y' %}[{{ c }}]{% endfor %}",
    "{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% set x = 1 %}{% for i in range(3) %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set x %}block {{ flag }}{% endset %}[{{ x }}]", "{% set x | upper %}block{% endset %}[{{ x }}]",
    "{% macro m(a, b='B', c=none) %}({{ a }}{{ b }}{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=5, a=4) }}{{ m() }}", "{% macro fact(n) %}{{ n }}{% if n > 1 %} {{ fact(n - 1) }}{% endif %}{% endmacro %}{{ fact(4) }}", "{% if 0 %}a{% elif '' %}b{% elif [] %}c{% elif d %}d{% else %}e{% endif %}",
    "{{ items[0] }} {{ items[-1] }} {{ items[1:] }} {{ items[:-1] }} {{ items[::-1] }} {{ items[::2] }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ 'h\u00e9llo'[1] }} {{ items[9] }}|", "{{ d.a }} {{ d['a'] }} {{ d.missing }}|{{ d['missing'] }}|{{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ d.missing is defined }}", "{{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }} {{ d | items | list }}",
    "{{ '  x y  '.strip() }}|{{ '  x '.lstrip() }}|{{ ' x  '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('yx') }}", "{{ 'a,b,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ ''.split(',') }} {{ ''.split() }}", "{{ 'hello'.startswith('he') }} {{ 'hello'.endswith(('x', 'lo')) }} {{ 'Hello'.upper() }} {{ 'Hello'.lower() }} {{ \"they're bill's\".title() }} {{ 'hELLO'.capitalize() }}", "{{ 'aaa'.replace('a', 'b') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.find('c') }} {{ 'abcabc'.count('b') }} {{ ','.join(['a', 'b']) }} {{ '42'.isdigit() }}",
    "{{ '  x ' | trim }}|{{ 'xax' | trim('x') }}|{{ items | length }} {{ items | count }} {{ 'h\u00e9y' | length }} {{ undefined_name | length }}", "{{ ['a', 1, none] | join(', ') }} {{ 'abc' | join('-') }} {{ users | join(', ', attribute='name') }}", "{{ 'Abc' | upper }} {{ 'Abc' | lower }} {{ 'hello world-foo bar' | title }} {{ 'hELLO' | capitalize }} {{ 'aXbX' | replace('X', '-') }} {{ 'aXbX' | replace('X', '-', 1) }}", "{{ items | first }} {{ items | last }} {{ [] | first }}|{{ 'abc' | list }} {{ 5 | string ~ 'x' }} {{ '12' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ '2.5' | float }}",
    "{{ undefined_name | default('D') }} {{ '' | default('D') }}|{{ '' | default('D', true) }} {{ none | d('D') }} {{ none | d('D', boolean=true) }}", "{{ users | map(attribute='name') | list }} {{ users | map(attribute='age', default=0) | list }} {{ ['a', 'b'] | map('upper') | join }} {{ [' a '] | map('trim') | list }}", "{{ [1, 2, 3, 4] | select('odd') | list }} {{ [1, none, 0, ''] | select | list }} {{ [1, 2, 3] | reject('equalto', 2) | list }} {{ [1, none] | reject('none') | list }}", "{{ users | selectattr('age') | map(attribute='name') | list }} {{ users | selectattr('name', 'equalto', 'Bo') | list | length }} {{ users | rejectattr('name', 'eq', 'Bo') | map(attribute='name') | list }} {{ users | selectattr('age', 'defined') | list | length }}",
    "{{ [3, 1, 2, 1] | unique | list }} {{ ['b', 'A', 'a'] | unique | list }} {{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }} {{ [3, 1, 2] | sort(reverse=true) }} {{ users | sort(attribute='name') | map(attribute='name') | list }}", "{{ [1, 2, 3] | reverse | list }} {{ 'abc' | reverse }} {{ 'a\\nb\\n\\nc' | indent }} {{ 'a\\nb' | indent(2, true) }} {{ 'a\\n\\nb' | indent(2, blank=true) }} {{ 'x' | safe }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }}",
    "{{ d | tojson }} {{ users | tojson(indent=2) }} {{ '\u00e9\"\\n<&>' | tojson }} {{ [1.5, true, none, []] | tojson }} {{ {} | tojson(indent=2) }} {{ 3 | tojson }} {{ {'b': {'c': []}} | tojson(indent=4) }} {{ {'z': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }}", "{{ 'x' is string }} {{ 1 is number }} {{ 1.5 is float }} {{ 1 is integer }} {{ true is boolean }} {{ true is number }} {{ d is mapping }} {{ items is iterable }} {{ items is sequence }} {{ 'x' is sequence }} {{ d is sequence }} {{ 1 is iterable }} {{ none is none }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 3 is odd }} {{ 4 is even }} {{ 6 is divisibleby 3 }} {{ 1 is equalto 1 }} {{ 1 is eq(2) }} {{ 2 is in [1, 2] }} {{ 2 is not in [1, 2] }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 3 is ge 3 }} {{ 3 is lt 2 }} {{ 3 is not gt 2 }} {{ d is not none }} {{ range is callable }}",
    "{{ undefined_name or 'x' }} {{ undefined_name == undefined_other }} {{ 'a' 'b' }} {{ -3 }} {{ +3 }} {{ - 3 + 5 }} {{ (1 + 2) * 3 }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ [0] * 3 }} {{ '%s is %d' % ('x', 3) }}", "{{ dict(a=1, b='x') }} {{ d['a'] ~ d.b }} {{ {'a': {'b': [1, {'c': 'deep'}]}}.a.b[1].c }} {{ namespace(a=3).a }}", "{{ users[0].name.upper() | lower | capitalize }} {{ (users | first).name }} {{ users[0]['name'][0] }} {{ 'abc'[-2:] }} {{ 'a b c'.split(' ')[-1] }} {{ '\u00e9'.upper() }} {{ '\u00df'.upper() }}",
    "{% set l = [1] %}{% set l = l + [2] %}{{ l }} {% if l[1] is defined and l[1] == 2 %}ok{% endif %}{% if l[5] is defined %}no{% endif %}", "{% for u in users %}{% for k, v in u.items() %}{{ loop.index }}{{ k }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for i in range(2) %}\n  {{ i }}\n{% endfor %}\nend\n", "{%- for i in range(2) %}\n  {{ i }}\n{%- endfor %}\nend\n", "{% for i in [1,2] -%}\n  x\n{%- endfor %}", "x {#- c -#} y {# d\n e #} z\n", "{{ loop is defined }} {{ [1,2,3] | sum }} {{ [3,1] | min }} {{ [3,1] | max }} {{ -5 | abs }} {{ 2.567 | round(2) }} {{ 2.5 | round }}",
    "{{ 'a\\u00e9\\x41' }} {{ '\\r' | length }} {{ 1_000 }} {{ 0x1f }}", "{{ ['a', 'b'] | map('replace', 'a', 'z') | list }} {{ 'x=%s' | format(5) }} {{ ['a','b'] | join(d='+') }} {{ 'one two' | wordcount }}", "{% if d.a == 1 and d.b != 'y' or not d.c %}t{% endif %} {{ (d.a == 1) | string }} {{ d | length }} {{ 'b' in d }} {{ d.items() | first }}",
    "{% for m in users %}{{ loop.cycle('odd', 'even') }} {% endfor %}{{ 'x' if users | length > 1 else 'y' }}", "{% for a in [[1, 2], [3, 4]] %}{{ a | join('-') }} {{ a[0] + a[1] }};{% endfor %}{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}", "{{ messages_none is none }} {{ none is defined }} {{ '' is defined }} {{ ''.strip() == '' }} {{ 'Z' > 'a' }} {{ [1, 2] < [1, 3] }} {{ 'x' != none }} {{ 1 != '1' }}",
]
FEATURE_VARIABLES = {
    "flag": True, "items": ["a", None, "b", "c"], "d": {"a": 1, "b": "x", "c": None},
    "users": [{"name": "Al", "age": 30}, {"name": "Bo"}, {"name": "cy", "age": 0}], "messages_none": None,
}
# Templates that must fail in both.
FAILURES = [
    "{{ raise_exception('told so') }}", "{{ missing.attribute }}", "{{ missing['item'] }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ none | length }}", "{{ 1 / 0 }}", "{% for i in none %}{% endfor %}", "{{ missing + 'a' }}", "{{ missing() }}", "{{ 'x'.nope() }}", "{{ d.a.b.c }}",
    "{% if true %}", "{% endif %}", "{{ 'open }}", "{{ 1 + }}", "{% unknown %}", "{{ x | unknown_filter }}", "{{ x is unknown_test }}", "{% for %}{% endfor %}", "{{ [1, 2 }}", "{{ }}", "{% set %}", "{# open", "{{ {'a' 1} }}", "{{ items | join(1, 2, 3, 4) }}", "{{ 1 < 'a' }}", "{% set d.x = 1 %}", "{{ ''.__class__ }}|{{ ''.__class__.__mro__ }}", "{{ range(10000000000) }}",
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Today's weather & <more>", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.5}}, "required": ["city"]}}}]


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def conversations():
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "K\u00f6ln", "days": 2, "flags": [True, None]}}}
    return [
        {"messages": [turn("user", "Hi")]},
        {"messages": [turn("system", "Be brief."), turn("user", "Hi")], "add_generation_prompt": True},
        {"messages": [turn("user", " Hi \n"), turn("assistant", " Hello! \n"), turn("user", "Bye")], "add_generation_prompt": True},
        {"messages": [turn("system", ""), turn("user", "1"), turn("assistant", "2"), turn("user", "3"), turn("assistant", "4")]},
        {"messages": [turn("user", "\u00dcberraschung \U0001F600 <|im_end|> {{ x }} {% y %}"), turn("assistant", "\u65e5\u672c\u8a9e\n\n```c\nint x;\n```")]},
        {"messages": [turn("user", "Weather?"), turn("assistant", "", tool_calls=[call]), turn("tool", "{\"t\": 3}"), turn("assistant", "3 degrees")], "tools": TOOLS},
        {"messages": [turn("system", "Tools!"), turn("user", "Weather?"), turn("assistant", "Looking", tool_calls=[call])], "tools": TOOLS, "add_generation_prompt": True},
        {"messages": [turn("assistant", "I speak first"), turn("user", "ok")]},
        {"messages": [turn("user", "think"), turn("assistant", "<think>\nhmm\n</think>\n\nyes"), turn("user", "again"), turn("assistant", "<think>\nso\n</think>\n\nno")]},
        {"messages": [turn("user", "a"), turn("user", "b"), turn("assistant", "c" * 50)], "date_string": "1 Jan 2030", "add_generation_prompt": True},
    ]


class GenerationBlock(jinja2.ext.Extension):
    """{% generation %}: renders its body and notes its place, as the chat template code of transformers does."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        return "\x02" + caller() + "\x03"


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env


def spans_of(marked):
    """The text without marks, and the byte ranges between them."""
    text, spans, begin = b"", [], 0
    for byte in marked.encode():
        if byte == 2:
            begin = len(text)
        elif byte == 3:
            spans.append([begin, len(text)])
        else:
            text += bytes([byte])
    return text.decode(), spans


def write_templates(folder):
    env = environment()
    rendered = []
    for name, source in TEMPLATES.items():
        template = env.from_string(source)
        for index, conversation in enumerate(conversations()):
            variables = {"tools": None, "add_generation_prompt": False, "bos_token": "<s>", "eos_token": "</s>", **conversation}
            row = {"template": name, "conversation": index}
            try:
                row["text"], spans = spans_of(template.render(**variables))
                if spans:
                    row["spans"] = spans
            except jinja2.exceptions.TemplateError as error:
                row["error"] = str(error)
            rendered.append(row)
    features = []
    for source in FEATURES:
        features.append({"source": source, "text": env.from_string(source).render(**FEATURE_VARIABLES)})
    for source in FAILURES:
        try:
            env.from_string(source).render(**FEATURE_VARIABLES)
        except Exception:  # any kind of failure
            continue
        raise AssertionError(f"renders: {source}")
    with open(os.path.join(folder, "templates.json"), "w", encoding="utf-8") as file:
        json.dump({"templates": TEMPLATES, "conversations": conversations(), "rendered": rendered, "features": features,
                   "feature_variables": FEATURE_VARIABLES, "failures": FAILURES}, file, indent=0)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    write_templates(folder)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes the golden file of chat templates for tests/text: our own templates rendered by jinja2, configured as in transformers.

    pip install jinja2
    python3 tools/reference/make_template_golden.py tests/golden/text/templates.json

The templates use the features of public ones (which check_templates.py compares).
"""
import json
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

TEMPLATES |= {
    "mistral_tools": """\
{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the system message, roles must alternate: user, assistant, user, ...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val | tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {{- "]" if loop.last else ", " }}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {%- if tool_call.id is defined and tool_call.id | length != 9 %}
                {{- raise_exception("A tool call's id has nine letters or digits, not '" ~ tool_call.id ~ "'") }}
            {%- endif %}
            {{- ', "id": "' + (tool_call.id or 'none') + '"}' }}
            {{- (", " if not loop.last else "]" + eos_token) }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] in ["tool_results", "tool"] %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content | string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user, assistant, tool and a first system message: " + message['role']) }}
    {%- endif %}
{%- endfor %}
""",
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
             "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('Turns go user, model, user, ...') }}{% endif %}"
             "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
             "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
             "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}",
    "phi": "{% for message in messages %}{% if message['role'] in ['user', 'system'] %}{{'<|' ~ message['role'] ~ '|>\\n' ~ message['content'] ~ '<|end|>\\n'}}"
           "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}",
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}\n"
              "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "vicuna": "{% set preface = 'A chat between a user and an assistant.' %}{% for message in messages %}"
              "{% if loop.first %}{{ message.content if message.role == 'system' else preface }}{{ ' ' }}{% endif %}"
              "{% if message.role == 'user' %}{{ 'USER: ' + message.content.strip() + ' ' }}"
              "{% elif message.role == 'assistant' %}{{ 'ASSISTANT: ' + message.content.strip() + eos_token }}{% endif %}{% endfor %}"
              "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
    "openchat": "{{ bos_token }}{% for message in messages %}{{ 'GPT4 Correct ' + message['role'].title() + ': ' + message['content'] + '<|end_of_turn|>' }}"
                "{% endfor %}{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}",
    "python_tools": """\
{%- macro json_to_python_type(spec) %}
{%- set basic = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
{%- if basic[spec.type] is defined %}
    {{- basic[spec.type] }}
{%- elif spec.type == "array" %}
    {{- "List[" + json_to_python_type(spec["items"]) + "]" }}
{%- elif spec.type == "object" %}
    {%- if spec.additionalProperties is defined %}
        {{- "Dict[str, " + json_to_python_type(spec.additionalProperties) + ']' }}
    {%- else %}
        {{- "Dict" }}
    {%- endif %}
{%- elif spec.type is iterable and spec.type is not string %}
    {{- "Union[" }}
    {%- for t in spec.type %}
        {{- json_to_python_type({"type": t}) }}
        {{- "," if not loop.last }}
    {%- endfor %}
    {{- "]" }}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{%- macro describe(tool, level=0, prefix='- ') -%}
    {%- filter indent(level * 2, true) -%}
        {{ prefix }}{{ tool.name }}: {{ tool.description | default('no description') }}
        {% for name, fields in tool.parameters.properties | dictsort %}
            {{- name }} ({{ json_to_python_type(fields) }}{{ ', required' if name in (tool.parameters.required or []) }}){{ '; ' if not loop.last }}
        {%- endfor %}
    {%- endfilter %}
{%- endmacro -%}
{%- if tools %}
    {%- for tool in tools %}
        {%- set arguments = {'level': loop.index, 'prefix': '{}. '.format(loop.index)} %}
        {{- describe(tool.function, **arguments) }}
        {{- describe(*[tool.function, 0]) + '\\n' }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- for call in message.tool_calls | default([], true) %}
        {{- call.function.name }}({% for key, value in call.function.arguments.items() %}{{ key }}={{ value | tojson if value is string or value is mapping else value }}{{ ', ' if not loop.last }}{% endfor %}){{ '\\n' }}
    {%- else %}
        {{- '{role}|{0}|{0}\\n'.format(message.content | string | length, role=message.role | upper) }}
    {%- endfor %}
{%- endfor %}
""",
    "parts": """\
{%- for message in messages %}
{%- if message.content is string %}
{%- set text = message.content %}
{%- elif message.content is sequence and message.content is not mapping %}
{%- set text = message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('') %}
{%- set images = message.content | rejectattr('type', 'eq', 'text') | list | length %}
{%- set text %}
{{ '<image>' * images }}{{ text }}{% endset %}
{%- else %}
{%- set text = '' %}
{%- endif %}
[{{ message.role | capitalize }}]{{ text | replace('\\n', ' ') | trim }}[/{{ message.role[:1] | upper }}]
{%- if not loop.last and loop.nextitem.role == message.role %} (again){% endif %}
{% endfor -%}
""",
    "typescript": """\
{%- macro type_of(spec, nested=false) -%}
    {%- if spec.enum %}{{ '"' ~ spec.enum | join('" | "') ~ '"' }}
    {%- elif spec.type == 'array' %}{{ type_of(spec['items'] or {'type': 'any'}) }}[]
    {%- elif spec.type is defined and spec.type is not string and spec.type is iterable %}{{ spec.type | join(' | ') }}
    {%- elif spec.type == 'object' and spec.properties %}{
        {%- for name, field in spec.properties.items() -%}
            {{ ' ' }}{{ name }}{{ '?' if name not in (spec.required or []) }}: {{ type_of(field, true) }}{{ ',' if not loop.last else ' ' }}
        {%- endfor -%} }
    {%- else %}{{ spec.type or 'any' }}{% endif -%}
    {%- if spec.default is defined %} /* {{ spec.default | tojson }} */{% endif -%}
{%- endmacro -%}
{% for tool in tools or [] -%}
type {{ tool.function.name }} = (_: {{ type_of(tool.function.parameters) }}) => any;
{% endfor -%}
{%- set last = namespace(assistant=none) -%}
{%- for message in messages -%}{% if message.role == 'assistant' %}{% set last.assistant = loop.index0 %}{% endif %}{%- endfor -%}
{% for message in messages %}
    {%- set role = {'tool': 'function', 'system': 'developer'}.get(message.role, message.role) -%}
    <|start|>{{ role }}{{ '<|channel|>final' if loop.index0 == last.assistant }}<|message|>{{ message.content or '' }}<|end|>
{%- endfor %}
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
FEATURES += [
    # calls with * and **, blocks through filters, formats, names
    "{% macro m(a, b=2, c=3) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(*[1, 5]) }} {{ m(1, **{'c': 9}) }} {{ m(*(7,), c=1) }} {{ [3, 1]|sort(**{'reverse': true}) }}",
    "{% filter upper | replace('A', 'o') %}banana {{ flag }}{% endfilter %}|{% filter indent(2) %}a\nb{% endfilter %}",
    "{{ '{} {}'.format('a', 1) }} {{ '{1}{0}{1}'.format('a', 'b') }} {{ '{{{x}}}'.format(x=none) }}",
    "{{ 'abcabc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }} {{ ''.replace('', 'x') }} {{ 'aaa' | replace('', '.', 1) }}",
    "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }} {{ 'a-b-c'.rsplit('-', 1) }} {{ 'a--b'.rsplit('-') }}",
    "{{ 'prefix'.removeprefix('pre') }} {{ 'file.txt'.removesuffix('.txt') }} {{ 'x'.removesuffix('y') }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3) }} {{ 'a'.center(4, '*') }} {{ 'ab'.center(5, '*') }}",
    "{{ 'h\u00e9h\u00e9'.find('\u00e9') }} {{ 'h\u00e9h\u00e9'.rfind('\u00e9') }} {{ 'x'.find('y') }} {{ 'h\u00e9'.index('\u00e9') }} {{ 'aXbX'.count('X') }} {{ 'abc'.count('') }}",
    "{{ 'a\\r\\nb\\x0bc\\u2028d\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} {{ ''.splitlines() }}",
    "{{ 'ab1'.isalnum() }} {{ 'ab'.isalpha() }} {{ '12'.isdigit() }} {{ ' '.isspace() }} {{ 'ab'.islower() }} {{ 'AB'.isupper() }} {{ ''.isalpha() }} {{ '\u00e9'.isalpha() }}",
    # text as Python has it
    "{{ ['\u00a0\u00ad\u200b\u2028\u00e9\U0001F600\x7f\ufeff\U000e0001', '\U0010ffff'] }} {{ {'\u200b': '\x85'} }}",
    "{{ '\u0391\u03a3'.title() }}{{ '\u0391\u03a3 \u03a3x'.capitalize() }} {{ '\u0391\u03a3' | title }} {{ '\u0391\u03a3'.lower() }} {{ '\u0391\u03a3\u0391' | lower }} {{ '\u03a3'.lower() }} {{ '\u01c6x'.title() }} {{ '\ufb01x'.capitalize() }} {{ '\u00dfx' | title }} {{ '\u0130'.lower() | length }} {{ '\ufb01'.upper() }}",
    "{{ ' \u00a0\u2003\x1c x \x85'.strip() }}|{{ '\u00e9\u00e9a\u00e9'.strip('\u00e9') }}|{{ '\ufeffx'.strip() | length }}",
    # numbers as Python has them
    "{{ 1e16 }} {{ 123456789012345680.0 }} {{ 1e-5 }} {{ 0.0001 }} {{ -0.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ 100.0 }} {{ 1e15 }} {{ 3.0 * 2 }} {{ 7 // 2.0 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 6.0 % -2 }}",
    "{{ 2 ** 0.5 }} {{ 2.0 ** 3 }} {{ true + true }} {{ -true }} {{ 10 / 5 }} {{ 1 / 3 }} {{ '3' | int + 1 }} {{ ' 42 ' | int }} {{ '1.9' | int }} {{ 'x' | int(7) }} {{ '0x1f' | int(base=16) }} {{ '1_000' | int }} {{ none | int }} {{ 2.9 | int }} {{ '2.5' | float }} {{ 'x' | float(1.5) }} {{ true | int }}",
    "{{ {'a': 1.0, 'b': [1e22, -0.5, 3, true, none], 'c': {'d': '\u00e9\\u0007\x7f</script>'}} | tojson }} {{ [] | tojson(indent=2) }} {{ [[], {}, [1]] | tojson(indent=1) }} {{ {'b': {'z': 1, 'y': 2}, 'a': 0} | tojson(sort_keys=true, indent=0) }} {{ (1, 'x') | tojson }}",
    "{{ {1: 'a', true: 'b', 2.5: 'c', none: 'd', 'k': 'e'} }} {{ {0: 512, 1: 3}[0] }} {{ {1: 2}.get(1.0) }} {{ 1 in {1: 2} }} {{ {1: [2], none: 0, true: 'x'} | tojson }} {{ {2: 1, 1: 1} | dictsort }} {% for k, v in {1: 2}.items() %}{{ k + v }}{% endfor %}{{ {2: 1, 1: 1} | tojson(sort_keys=true) }} {{ {'a': 1}[1] }}|",
    "{{ '\u00e9\U0001F600\"\\u0001' | tojson(ensure_ascii=true) }} {{ {'\u00fc': '\uffff'} | tojson(ensure_ascii=true, indent=1) }}",
    "{{ '<' | safe + '>' }} {{ '<b>' + ('&' | safe) }} {{ ('<' | safe) ~ '>' }} {{ ('<' | safe + \"'\") + '\"' }} {{ '<' | safe | string }}{% set x = '<' | safe %}{{ x + '&amp;' }} {{ '<' | safe == '<' }}",
    "{{ none | map('upper') | list }} {{ none | selectattr('x') | list }} {{ none | reject('none') | list }} {% if false %}{{ x | unknown_filter }}{{ 1 is unknown_test }}{% endif %}",
    # names
    "{% for i in [] %}{% else %}{% set x = 1 %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% if i == 1 %}{% set x = 9 %}{% endif %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if flag %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% set y %}{% set x = 5 %}{{ x }}{% endset %}{{ x }}{{ y }}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}{% for x in [7] %}{{ m() }}{% endfor %}", "{% macro m(x=flag, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ m() }} {{ m(3) }}",
    "{% for x in [1, 2] %}{% for x in [x * 10, x * 10 + 1] %}{{ x }},{% endfor %}{{ x }};{% endfor %}", "{% for i in [1, 2] %}{{ loop.depth }}{{ loop.depth0 }}{% for j in [3] %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop }}{% endfor %}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}{{ ns.c }}|{{ ns }}", "{{ none.x }}|{{ none['x'] }}|{{ 5 .x }}|{{ 'abc'['x'] }}|{{ [1]['x'] }}",
    "{{ 'abc'[5:] }}|{{ 'abc'[-9:2] }}|{{ [1, 2, 3][2:0:-1] }}|{{ 'h\u00e9llo'[1:3] }}|{{ 'h\u00e9llo'[-3:] }}|{{ 'h\u00e9llo'[::2] }}|{{ [1, 2, 3][:none] }}",
    "{{ [1, none, 'a', undefined_name] }} {{ undefined_name in [1] }} {{ 'a' in undefined_name }} {{ undefined_name | list }} {{ undefined_name ~ 'x' }} {{ undefined_name | tojson if undefined_name else '-' }}",
    "{{ d.copy() }} {{ [1, 2].copy() }} {{ (1, 2).index(2) }} {{ [1, 1].count(1) }} {{ d.get('zz', undefined_name) }}|{{ [undefined_name | default(other_name)] }} {{ undefined_name is callable }} {{ 1e16 // 3 }} {{ true | round(1) }}",
    "{{ [2, 10, 1] | sort | join(',') }} {{ [(2, 'b'), (1, 'z')] | sort }} {{ {'b': 1, 'A': 3} | dictsort }} {{ {'b': 1, 'A': 3} | dictsort(false, 'value', true) }} {{ users | map('length') | list }} {{ 'a' is in ['a'] }} {{ 1 is sameas 1 }}",
    "{{ '%s-%s' % ('a', 1) }} {{ '%d%%' % 5 }} {{ '%s' % [1] }} {{ 'x' if none is none and not none is defined else 'y' }} {{ (flag and 'a') or 'b' }} {{ 1 if flag }}{{ 2 if not flag }}",
    "{%- set a = 1 -%}\n {%- set b = 2 %}\n{{ a }}\n\n{%- if a %}\n  x\n{%- endif %}\n  {{- b }} y \n", "  {# c #}  \n  {% set x = 1 %}  \nx\n\t{%- if x +%}\n  y\n  {%+ endif -%}\n z", "\n\n{% raw -%}\n  {{ a }} {%- endraw %}\n", "{{ '{{' }} {{ '}}' }} {% if '%}' %}x{% endif %} {{ {'a': {'b': 1}} }}",
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
FAILURES += [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ [].__init__.__globals__ }}", "{{ d.__class__.__name__ }}", "{{ ''['__class__']['__base__'] }}", "{{ '{0.__class__}'.format(1).x.y }}",
    "{{ cycler.__init__.__globals__.os }}", "{{ namespace.__init__.__globals__.os }}", "{{ raise_exception.__globals__.x }}", "{{ d.update({'a': 2}) }}", "{{ d.pop('a') }}", "{{ items.clear() }}",
    "{{ 'x' | attr('__class__') | attr('__mro__') | first | upper | nope }}", "{{ dict(**5) }}", "{{ range(**{'a': 1}) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% for a, b in [[1]] %}{% endfor %}", "{{ [1, 2] | join(attribute='x') | nope }}", "{{ {'a': 1}[[]].x }}", "{{ [1] in d }}", "{{ 0 ** -1 }}", "{{ 0.0 ** -1 }}", "{{ '{}'.format() }}", "{{ '{'.format() }}", "{{ '{} {0}'.format(1) }}",
    "{{ 'a'.index('b') }}", "{{ [[1]] | unique | list }}", "{{ d.items() | unique | list | length if false else [{}] | unique | list }}", "{{ missing | indent }}", "{{ 5 | indent }}", "{{ 1 is none is string }}", "{{ 1 is none if true else 2 }}", "{{ [1].index(2) }}", "{{ 'x'.center() }}", "{{ ''.join([1]) }}", "{% break %}", "{% for i in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{{ 5 | length }}", "{{ loop.index }}",
    "{% set ns = namespace(a=1) %}{{ ns.b.c }}", "{{ f(*1) }}", "{{ [1] | map('upper') | tojson }}", "{{ d.items() | tojson }}", "{{ range(3) | tojson }}", "{{ {[1]: 2} }}", "{% if true %}{{ 1 | unknown_filter }}{% endif %}", "{% if true %}{% for i in [] %}{{ 1 | unknown_filter }}{% endfor %}{% endif %}", "{{ d[1:] }}", "{{ 'a' * 'b' }}", "{{ none + 1 }}", "{{ d + d }}", "{{ -'a' }}", "{{ [] < 1 }}", "{{ [1, 'a'] | sort }}", "{{ 'x' % 1 }}", "{{ '%d' % 'x' }}", "{{ range('a') }}", "{{ range(1, 2, 0) }}", "{{ 3 | tojson(9, 9, 9, 9, 9) }}", "{{ range | tojson }}", "{{ undefined_name | tojson }}",
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Today's weather & <more>", "parameters": {
    "type": "object", "properties": {"zone": {"type": ["string", "null"], "enum": ["b", "a"]}, "city": {"type": "string"}, "days": {"type": "integer", "default": 1.5},
                                      "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]}}}]


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
        {"messages": [turn("user", "W"), turn("assistant", "", tool_calls=[{**call, "id": "abc123DEF"}, {**call, "id": "x"}]), turn("tool", "3"), turn("user", "And?")], "tools": TOOLS},
        {"messages": [turn("user", [{"type": "text", "text": "See\n"}, {"type": "image"}, {"type": "text", "text": " this "}]), turn("user", None), turn("assistant", [])]},
        {"messages": [turn("user", ""), turn("narrator", " \u0130\u00df "), turn("user", " ")], "add_generation_prompt": True},
        {"messages": [turn("user", "t"), turn("assistant", "a", reasoning="r"), {"role": "assistant", "thinking": "t", "content": "b"}]},
    ]


class GenerationBlock(jinja2.ext.Extension):
    """{% generation %}: renders its body and records its position, like transformers' chat template code."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        return "\x02" + caller() + "\x03"


def with_reasoning(message):
    """What apply_chat_template of transformers 5 does first: reasoning has three names, of which templates read two."""
    given = [message[name] for name in ("reasoning_content", "thinking", "reasoning") if message.get(name) is not None]
    return {"thinking": given[0], **message, "reasoning_content": given[0]} if given else message


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


def write_templates(path):
    env = environment()
    rendered = []
    for name, source in TEMPLATES.items():
        template = env.from_string(source)
        for index, conversation in enumerate(conversations()):
            variables = {"tools": None, "add_generation_prompt": False, "bos_token": "<s>", "eos_token": "</s>", **conversation}
            variables["messages"] = [with_reasoning(message) for message in conversation["messages"]]
            row = {"template": name, "conversation": index}
            try:
                row["text"], spans = spans_of(template.render(**variables))
                if spans:
                    row["spans"] = spans
            except Exception as error:  # whatever Python raises for what a template does
                row["refusal" if type(error) is jinja2.exceptions.TemplateError else "error"] = str(error)
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
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"templates": TEMPLATES, "conversations": conversations(), "rendered": rendered, "features": features,
                   "feature_variables": FEATURE_VARIABLES, "failures": FAILURES}, file, indent=0)


if __name__ == "__main__":
    write_templates(sys.argv[1])

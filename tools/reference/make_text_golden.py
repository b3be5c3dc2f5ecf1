#!/usr/bin/env python3
"""Golden files of tests/text: tiny tokenizers with ids by the `tokenizers` package, chat templates rendered by jinja2.

    pip install tokenizers jinja2
    python3 tools/reference/make_text_golden.py tests/golden/text
"""
import json
import os
import sys
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# A pattern that has no hand-written splitter.
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = """The quick brown fox jumps over the lazy dog. It's a dog's life, isn't it? We're sure they've said I'm late.
def main(argc, argv):\n    for i in range(10):\n        print(i, argv[i])\n    return 0\n
In 1984 there were 365 days and 12 months; by 2024 there are 366. 3.14159, 1,000,000 and 42%.
Hello world! Hello there, hello again. THE END. It'S SHOUTING, DON'T. \u00dcn\u00efc\u00f6d\u00e9 fa\u00e7ade na\u00efve caf\u00e9.
\u4f60\u597d\u4e16\u754c \u4f60\u597d \u3053\u3093\u306b\u3061\u306f\u4e16\u754c \uc548\ub155\ud558\uc138\uc694 \u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u043f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645
<|im_start|>user\nWhat is the answer?<|im_end|>\n<div class="a">text</div> http://example.org/path?x=1&y=2
\t\tindent\t\ttabs   spaces    more     spaces\n\n\nnew lines\r\n\r\nwindows lines
""" * 3


def texts():
    """About 150 texts that are hard for pre-tokenizers."""
    plain = [
        "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r\n\r\n", " \n", "\n ", " \n ", "  \n  \n  ",
        "a", " a", "a ", " a ", "  a  ", "\na\n", "a\n\nb", "a \n\n b", "a\r\nb", "a  \r\n  b", "\t\ta\t\tb", "a\u00a0b", "a \u00a0 b",
        "Hello world", " Hello world", "Hello  world", "Hello   world  ", "Hello, y'all! How are you \U0001F601 ?\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e",
        "The quick brown fox jumps over the lazy dog.", "ied 4 \u00bd months", "w048 7tuijk dsdfhu", "\u043d\u0435\u0449\u043e \u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438",
        "\u1780\u17b6\u1793\u17cb\u178f\u17c2\u1796\u17b7\u179f\u17c1\u179f\u17a2\u17b6\u1785\u1781\u179b\u1785\u17c1\u1789", "\U0001F680 (normal) \U0001F636\u200d\U0001F32B\ufe0f (multiple emojis concatenated) \u2705 (only emoji that has its own token)",
        "I'm you're he's she'd we'll they've it'd don't", "I'M YOU'RE HE'S SHE'D WE'LL THEY'VE IT'D DON'T", "i'M, yOu'Re 'S 'T 'LL 'lL 'Ve",
        "'s", "''s", "' s", " 's", "'", "''", "'''", "' ' '", "x's'y", "'sx", "'\u017f \u017f's 's\u017f", "l'l'll", "'rE 'vE", "don\u2019t \u2018quoted\u2019 \u201ctext\u201d",
        "1", "12", "123", "1234", "12345", "1234567890", "3.14159", "1,000,000", "1 2 3", " 12 345 6789", "0x1F", "v2.0.1", "10%", "$5.00", "a1b2c3",
        "\u00bd \u00be \u00b2 \u00b3 \u00b9 \u2167 \u2178 \u2460 \u2461 \u32bf", "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669", "\u0966\u0967\u0968\u0969\u096a\u096b\u096c\u096d\u096e\u096f", "\uff11\uff12\uff13\uff14\uff15", "\U0001D7D8\U0001D7D9\U0001D7DA", "\u4e09\u5341\u56db", "123\u0664\u0665\u0666789", "\u00b2\u00b34",
        "def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b[i];\n}\n", "if x == 1:\n        pass\n\n\n    # comment", "a+b-c*d/e%f", "=====", "-----\n-----",
        "!!!", "?!?!", "...", "\u2026", "a...b", "(a)(b)", "[x]{y}<z>", "@user #tag", "path/to/file.txt", "C:\\Windows\\System32", "https://example.org/a?b=c&d=e#f", "me@example.org",
        "<html><body class=\"x\">text</body></html>", "{\"key\": [1, 2.5, null, true]}", "\\n \\t \\\\", "`code` ```block```\n", "| a | b |\n|---|---|\n",
        "\u4f60\u597d", "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u30b3\u30f3\u30d4\u30e5\u30fc\u30bf", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u4e2d\u6587 English \u6df7\u5408 text", "\u6f22\u5b57\u304b\u306a\u4ea4\u3058\u308a\u6587", "\u3000\u5168\u89d2\u3000\u7a7a\u767d", "\U00020000\U0002A6D6",
        "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0627\u0644\u0633\u064e\u0651\u0644\u0627\u0645\u064f \u0639\u064e\u0644\u064e\u064a\u0652\u0643\u064f\u0645", "\u05e2\u05b4\u05d1\u05b0\u05e8\u05b4\u05d9\u05ea", "a\u200fb\u200ec", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac", "\u0391\u0392\u0393 \u03b1\u03b2\u03b3 \u03c2",
        "e\u0301", "cafe\u0301 caf\u00e9", "a\u0300\u0301\u0302b", "\u0301", " \u0301", "o\u0308\u0304 \u00f6\u0304", "a\u0316\u0301 a\u0301\u0316", "\u1100\u1161\u11a8 \uac01", "\u212b \u00c5 A\u030a", "\uf900\u2126", "q\u0307\u0323 q\u0323\u0307", "\u0958 \u0915\u093c", "\u1e9b\u0323",
        "\U0001F600", "\U0001F600\U0001F601", "\U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466", "\U0001F44D\U0001F3FD", "\U0001F1E9\U0001F1EA\U0001F1EB\U0001F1F7", "\u2764\ufe0f \u2665 \u2603", "1\ufe0f\u20e3", " \U0001F600 ",
        "\u200b", "a\u200bb", " \u200b ", "\ufeff", "\ufeffabc", "x \ufeffy", "\u180e", " \u180ex", "a\u2028b\u2029c", "a\u0085b", "a\u2003b\u2009c", "\u1680x", "\u202f\u205f x", "\u00ad soft\u00adhyphen",
        "\x00", "a\x00b", "\x01\x02\x03", "\x1b[31mred\x1b[0m", "\x7f", "a\x0bb\x0cc", "\x1c\x1d\x1e\x1f x", "\x80\x81", "\ue000 private", "\ufffd", "\ufffe\uffff", "\U0010ffff",
        "    indented", "\t    mixed", "trailing   ", "trailing\t\n", "a" * 60, " " * 40, "\n" * 20, " " * 17 + "x", "ab" * 40, "ha" * 30 + "!" * 30, "word " * 15,
        "\u01c5 \u01c8 \u02b0 \u00aa \u00ba", "\ufb00 \ufb01 \ufb02", "\u00df \u1e9e \u0130 \u0131", "K \u00c5", "_under_score__", "camelCaseString HTTPServer", "x\u00b2+y\u00b2=z\u00b2", "\u00b5 \u03a9 \u2103", "$\u20ac\u00a3\u00a5\u20b9", "\u2020 \u2021 \u00a7 \u00b6", "\u2190\u2192\u21d2\u2200\u2203\u2208",
        "Stra\u00dfe, na\u00efve fa\u00e7ade \u2014 \u201cquotes\u201d \u2026 done",
    ]
    special = [
        "<|im_start|>user\nHi<|im_end|>\n", "<|im_end|><|im_end|>", "a <|im_end|> b", "<|im_end|", "<|im_start|><|im_start|", "x<|endoftext|>y", "<|endoftext|>",
        "wordMASK MASK maskMASKs (MASK) MASK", "left   <strip>   right", "a<strip>b", " <strip>", "<strip> ", "<strip><strip>", "keepkeeper keep", "\u00e9KEEP\u00e9 KEEP", "<tool_call>\n{}\n</tool_call>",
    ]
    return plain, special


def byte_level(name):
    tokenizer = Tokenizer(models.BPE())
    byte_level_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    regex = {"llama3": LLAMA3, "qwen2": QWEN2, "cased": CASED}.get(name)
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif name == "gpt2_prefix":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif name == "smollm2":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif name == "behaviors":
        split = pre_tokenizers.Split
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            split(Regex(r"[.,;]+"), "merged_with_previous"), split("(", "merged_with_next"), split(Regex(r"\d"), "contiguous"),
            split(Regex(r"\S+\s*|\s+"), "removed", invert=True), split("=", "isolated"), byte_level_only])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), byte_level_only])
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=620, special_tokens=specials if name == "smollm2" else [],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    tokenizer.add_tokens([AddedToken("MASK", single_word=True, normalized=False), AddedToken("<strip>", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("keep", normalized=True), AddedToken("\u00e9KEEP", normalized=True, single_word=True),
                          AddedToken("<tool_call>", normalized=False)])
    if name == "llama3":
        state = json.loads(tokenizer.to_str())
        state["model"]["ignore_merges"] = True
        # Tokens that no merge makes are what ignore_merges is about.
        for word in ("\u0120fox", "\u0120world", "Hello", "\u0120Bulgarian", "1984"):
            state["model"]["vocab"].setdefault(word, max(state["model"]["vocab"].values()) + 100)
        tokenizer = Tokenizer.from_str(json.dumps(state))
        bos = tokenizer.token_to_id("<|endoftext|>")
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|> $B",
                                          special_tokens=[("<|endoftext|>", bos)])])
    return tokenizer


def llama2():
    """Characters with byte fallback: merges learned by the trainer on the normalised corpus."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    alphabet = [chr(c) for c in range(33, 127)] + list("\u2581\u00e9\u4f60\u597d\u043f\u0440")  # the rest falls back to bytes
    trainer = trainers.BpeTrainer(vocab_size=620, special_tokens=specials, show_progress=False,
                                  initial_alphabet=alphabet, limit_alphabet=len(alphabet))
    # Train on words, so that merges stay short; at run time there is no pre-tokenizer.
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    tokenizer.train_from_iterator([CORPUS], trainer)
    state = json.loads(tokenizer.to_str())
    state["pre_tokenizer"] = None
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def compact(state):
    state["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in state["model"]["merges"]]
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))


def write_tokenizers(folder):
    plain, special = texts()
    with open(os.path.join(folder, "texts.json"), "w", encoding="utf-8") as file:
        json.dump({"plain": plain, "special": special}, file, ensure_ascii=True, indent=0)
    for name in ("gpt2", "gpt2_prefix", "llama3", "qwen2", "smollm2", "cased", "behaviors", "llama2"):
        tokenizer = llama2() if name == "llama2" else byte_level(name)
        path = os.path.join(folder, f"{name}.tokenizer.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(compact(json.loads(tokenizer.to_str())))
        tokenizer = Tokenizer.from_file(path)
        assert os.path.getsize(path) < 60000, (name, os.path.getsize(path))
        rows = []
        for text in plain + special:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            row = {"ids": ids, "with_special": tokenizer.encode(text).ids}
            tokenizer.encode_special_tokens = True
            row["as_text"] = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = False
            row["decoded"] = tokenizer.decode(ids, skip_special_tokens=False)
            row["skipped"] = tokenizer.decode(ids, skip_special_tokens=True)
            # What is the same as a field before is left out.
            for key, other in (("with_special", ids), ("as_text", ids), ("decoded", text), ("skipped", row["decoded"])):
                if row[key] == other:
                    del row[key]
            rows.append(row)
        partial = []  # decoding of every single id and of ids cut anywhere
        size = tokenizer.get_vocab_size()
        for k in range(60):
            ids = [(k * 7919 + j * j * 104729 + 13 * j) % size for j in range(1 + k % 9)]
            partial.append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        with open(os.path.join(folder, f"{name}.golden.json"), "w", encoding="utf-8") as file:
            json.dump({"texts": rows, "decode": partial}, file, separators=(",", ":"))


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
    write_tokenizers(folder)
    write_templates(folder)


if __name__ == "__main__":
    main()

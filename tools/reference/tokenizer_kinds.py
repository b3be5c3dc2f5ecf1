"""Shared by the tokenizer checks: the texts, and training of tokenizers of each kind.

Used by make_tokenizer_golden.py (small ones, committed) and check_tokenizers.py (larger ones, made anew).
"""
import io
import json
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# A pattern without a hand-written splitter.
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


MORE_TEXTS = [
    # Code.
    "#include <vector>\nint main() { std::vector<int> v{1, 2, 3}; return v.size() > 2 ? 0 : 1; }\n", "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 GROUP BY 1;",
    "fn main() -> Result<(), Box<dyn Error>> {\n    let x: u8 = 0xff_u8;\n    Ok(())\n}", "class A(B):\n\t\"\"\"Doc.\"\"\"\n\n\tdef __init__(self, *args, **kwargs):\n\t\tsuper().__init__()\n",
    "const f = async (x) => { await g(`${x}!`); };", "<!-- c --><a href='x'>y</a>&nbsp;&amp;", "$ grep -rn \"foo\" . | awk '{print $1}' > out.txt 2>&1", "\\frac{a}{b} \\sum_{i=0}^{n} x_i^2 \\le \\infty",
    "def f():\r\n\treturn None\r\n\r\n\r\n", "int\tx;\n\n\n\n\t\t\ty;", "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n", "key: value\nlist:\n  - a\n  - b\n", "0b1010 0o777 0xDEADBEEF 1e-10 1_000", "a->b.c::d[e](f){g}<h>",
    "//////// comment ////////", "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n", "x = y if z else w; x += 1; x **= 2; x //= 3", "@decorator\nasync def f(): yield from g()", "/* a\n * b\n */", "f(a,b,c);f( a , b , c );",
    # Emoji, modifiers and joiners.
    "\U0001F3F3\ufe0f\u200d\U0001F308", "\U0001F469\U0001F3FD\u200d\U0001F4BB \U0001F468\U0001F3FF\u200d\U0001F680", "\U0001F9D1\u200d\U0001F91D\u200d\U0001F9D1", "\U0001F1FA\U0001F1F8\U0001F1EF\U0001F1F5",
    "\U0001F3F4\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F", "text\U0001F600text", "\U0001F600 \U0001F600  \U0001F600", "\u263a\ufe0e \u263a\ufe0f", "#\ufe0f\u20e3 *\ufe0f\u20e3 0\ufe0f\u20e3", "\U0001FAE0\U0001FAF6\U0001F979",
    "\u00a9\ufe0f \u00ae\ufe0f \u2122", "\U0001F468\u200d\u2764\ufe0f\u200d\U0001F48B\u200d\U0001F468", "\u200d\u200d", "\ufe0f\ufe0f", ":-) ;-) <3 \u00af\\_(\u30c4)_/\u00af",
    # Combining marks and normalisation.
    "Z\u0335\u0327\u0300\u0341a\u0334\u0321\u0310l\u0338\u0323\u0301g\u0336\u0328\u030ao\u0337\u0331\u0308", "\u0e01\u0e33\u0e25\u0e31\u0e07 \u0e44\u0e17\u0e22", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f",
    "\u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd", "\u0c28\u0c2e\u0c38\u0c4d\u0c15\u0c3e\u0c30\u0c02", "\u1019\u103c\u1014\u103a\u1019\u102c", "\u0f56\u0f7c\u0f51\u0f0b", "o\u0302\u0323 \u1ed9 o\u0323\u0302", "\ufb03 \ufb2a \uff76\uff9e \u30ac \u30ab\u3099",
    "\u2126 \u03a9 \u212a K", "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00", "\u3131\u3132\u3133 \uffa1", "\u01c4\u01c5\u01c6 \u0132\u0133", "\u00bc\u2153\u215e \u2074\u2075 \u2081\u2082", "\u2160\u2161\u216b \u2170", "\u33a1 \u33c2 \u3392", "\ufdfa",
    "\u1e9b\u0323 \u017f\u0307", "\U0001D400\U0001D41A \U0001D4D0 \U0001D538", "\u2460\u24b6\u24d0 \u3251", "\uff21\uff22\uff23\uff41\uff42\uff43 \uff01\uff1f", "\u0344 \u0387 \u1fee", "\u0340\u0341\u0343", "a\u0315\u0300\u05ae\u0300b", "\U0001D15E \U0001D160",
    # Chinese, Japanese, Korean and other scripts.
    "\u5929\u5730\u7384\u9ec4\u5b87\u5b99\u6d2a\u8352", "\u4eca\u65e5\u306f\u826f\u3044\u5929\u6c17\u3067\u3059\u306d\u3002", "\u300c\u5f15\u7528\u300d\u3001\u300e\u4e8c\u91cd\u300f\u2014\u2014\u4e2d\u2026\u2026", "2024\u5e741\u67081\u65e5 10:30", "\uac00\ub098\ub2e4\ub77c 123 ABC",
    "\u7530\u4e2d\u3055\u3093\u306fPython3.11\u3092\u4f7f\u3046", "\u3042\u309a\u304b\u3099", "\U00031350\u9fff\u3400", "\u0391\u03b8\u03ae\u03bd\u03b1 \u039f\u0394\u039f\u03a3", "\u0410\u0411\u0412 \u0430\u0431\u0432 \u0401\u0451", "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8",
    "\u0540\u0561\u0575\u0565\u0580\u0565\u0576", "\u12a0\u121b\u122d\u129b \u1369\u136a", "\u1820\u180b\u1821", "\ua000\ua001 \u16a0\u16a1 \u13a0\u13a1", "\u0130stanbul I\u0307 \u0131", "\u1e9e\u00df \u01f0",
    # Right to left.
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645", "\u0628\u0650\u0633\u0652\u0645\u0650 \u0627\u0644\u0644\u0651\u064e\u0647\u0650", "\u05d1\u05b0\u05bc\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea \u05d1\u05b8\u05bc\u05e8\u05b8\u05d0",
    "\u200fabc\u200e \u0634\u0631\u06a9\u062a\u200c\u0647\u0627", "\u06f1\u06f2\u06f3 \u0661\u0662\u0663", "\u202eabc\u202c \u2066x\u2069", "\u0623\u0646\u0627 I am 5 \u0633\u0646\u0648\u0627\u062a", "\u061f \u060c \u061b \u0640\u0640\u0640", "\ufe8d\ufedf\ufee0\ufeea", "\u0710\u0712\u0713 \u07ca\u07cb",
    # White space.
    "   a", "    a    ", "        return x", " " * 100, "\t" * 10, "\n\n\na", "a\n\n\n\n\n", " \t \t ", "\t \t x", "a \tb", "a\t b", "a\n\tb\n\t\tc", "x\n \n  \n   y", "\r", "\r\r", "a\rb", "\n\r\n\r", "\v\f", "a \v\f b", "\u00a0\u00a0",
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a", "a\u2007b\u2060c", "\u3000\u3000x", "\u0085\u0085", "\u2028\u2029", "x\u200b\u200c\u200dy", "\ufeff\ufeff", " \ufeffx", "x\ufeff ", "\ufeff x", "\u180e\u180e x", "\u2060\u2061",
    "word\u00a0word\u202fword", "  two  spaces  each  ", "\n  \n", "end \n", " \n\n  start", "tab\tseparated\tvalues\n1\t2\t3\n", " \u2581", "\u2581", "\u2581\u2581a", "a\u2581b \u2581c", "a" + " " * 31 + "b", "\u1680\u1680",
    # Control characters and the ends of planes.
    "\x00\x00", "\x01a\x02 b\x03", "\x1b]0;title\x07", "a\x08b", "\x7f\x7f", "\x84\x86\x9f", "\ufff9\ufffa\ufffb", "\ufffd\ufffd", "\ufffd \ufffd", "\U0001FFFE\U0010FFFF", "\U000F0000 \U00100000", "\ue000\uf8ff", "\ufdd0\ufdef", "\u0378\u0379", "\U000E0001\U000E0020", "\x1c \x1d \x1e \x1f",
    # Words, contractions, numbers, punctuation.
    "can't won't shan't I'd've y'all'd've", "rock'n'roll 'tis 'twas o'clock", "CAN'T WON'T SHE'LL", "it's''s ''s", "'Re 'rE 'RE 'lL", "''\u017f '\u017f\u017f", "don't\u2019t can\u2019t", "1st 2nd 3rd 4th 21st", "12:34:56.789", "+1 (555) 010-9999",
    "192.168.0.1:8080", "\u20ac1.234,56 $1,234.56", "3.14e+00 -0.5 .5 5.", "1234567890" * 3, "\u0967\u0968\u0969123", "\u2167\u2168 \u00bd1\u00bd", "e.g., i.e., etc.", "Mr. O'Neill-Smith, Ph.D.", "What?! No... (really) [yes] {maybe}", "\u00bfQu\u00e9? \u00a1S\u00ed!",
    "\u00ab guillemets \u00bb \u201elow\u201c", "a\u2013b\u2014c\u2212d-e", "***bold*** __under__ ~~strike~~", "====\n----\n####", "a/b\\c|d", "!@#$%^&*()_+-=[]{};':\",.<>/?`~", "~" * 30, "." * 30, "-" * 33, "\u2500" * 20, "antidisestablishmentarianism",
    "Donaudampfschifffahrtsgesellschaft", "aAaAaA AaAaAa AAAA aaaa", "iPhone eBay McDonald LaTeX", "snake_case_name SCREAMING_CASE kebab-case", "x" * 200, "ab " * 50, "\u4e00" * 40, "\u00e9" * 30,
    "My fellow Americans, the state of our Union is strong.", "Tonight, I want to speak about the jobs, the economy, and health care.", "The Congress and the President of the United States of America",
    "[PAD] [UNK] <|x|> <0x0A>", "<s", "< s >", "s>",
]


def texts():
    """More than 300 texts that are hard for tokenizers; those of the second list contain added tokens."""
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
    return plain + MORE_TEXTS, special


def byte_level(name, corpus, vocab_size):
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
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=specials if name == "smollm2" else [],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    tokenizer.add_tokens([AddedToken("MASK", single_word=True, normalized=False), AddedToken("<strip>", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("keep", normalized=True), AddedToken("\u00e9KEEP", normalized=True, single_word=True),
                          AddedToken("<tool_call>", normalized=False)])
    if name == "llama3":
        state = json.loads(tokenizer.to_str())
        state["model"]["ignore_merges"] = True
        # ignore_merges concerns tokens that no merge produces.
        for word in ("\u0120fox", "\u0120world", "Hello", "\u0120Bulgarian", "1984"):
            state["model"]["vocab"].setdefault(word, max(state["model"]["vocab"].values()) + 100)
        tokenizer = Tokenizer.from_str(json.dumps(state))
        bos = tokenizer.token_to_id("<|endoftext|>")
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|> $B",
                                          special_tokens=[("<|endoftext|>", bos)])])
    return tokenizer


def llama2(corpus, vocab_size):
    """Characters with byte fallback; the trainer learns merges on the normalised corpus."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    alphabet = [chr(c) for c in range(33, 127)] + list("\u2581\u00e9\u4f60\u597d\u043f\u0440")  # other characters fall back to bytes
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=specials, show_progress=False,
                                  initial_alphabet=alphabet, limit_alphabet=len(alphabet))
    # Trained on words, so that merges stay short; there is no pre-tokenizer at run time.
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    tokenizer.train_from_iterator(corpus, trainer)
    state = json.loads(tokenizer.to_str())
    state["pre_tokenizer"] = None
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def few_rules():
    """A file with a few of nmt_nfkc's normalisation rules; its whole map would make the fixtures large."""
    rules = {chr(cp): unicodedata.normalize("NFKC", chr(cp)) for cp in (*range(0xA0, 0x180), *range(0x2150, 0x2180), *range(0xFB00, 0xFB07), *range(0xFF01, 0xFF5F))}
    rules |= {chr(cp): " " for cp in (9, 10, 12, 13, 0x85, 0x1680, 0x2028, 0x2029, 0x200B, 0x3000, 0xFEFF)}
    rules |= {base + mark: unicodedata.normalize("NFC", base + mark) for base in "aeiouAEIOU" for mark in "\u0300\u0301\u0302\u0308"}
    rules |= {chr(cp): "" for cp in (*range(1, 9), 0x7F, 0xAD)}
    file = tempfile.NamedTemporaryFile("w", suffix=".tsv")
    for source, target in sorted(rules.items()):
        if source != target:
            file.write("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in (source, target)) + "\n")
    file.flush()
    return file


def sentencepiece_model(name, corpus, vocab_size, rules=None):
    """The bytes of a tokenizer.model: spm_llama and spm_mistral with those models' settings, spm_unigram with the defaults, or with
    a file of normalisation rules."""
    options = {"vocab_size": vocab_size, "minloglevel": 2, "num_threads": 1, "hard_vocab_limit": False, "max_sentence_length": 100000}
    if name == "spm_unigram":
        options |= {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
        if rules is not None:
            options["normalization_rule_tsv"] = rules.name
    else:
        options |= {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                    "split_digits": True, "allow_whitespace_only_pieces": True, "character_coverage": 0.9995}
    if name == "spm_mistral":
        options |= {"control_symbols": ["[INST]", "[/INST]"], "user_defined_symbols": ["<|tool|>", "\u2581\u2581\u2581"]}
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_writer=writer, **options)
    return writer.getvalue()


def proto_of(model):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return proto


def ranked_merges(proto):
    """The merge pairs of each piece in order of score, as transformers writes them for Llama."""
    normal = {piece.piece: piece.score for piece in proto.pieces if piece.type == 1}
    merges = []
    for index, (piece, score) in enumerate(normal.items()):
        merges += [(-score, index, -cut, piece[:cut], piece[cut:]) for cut in range(1, len(piece))
                   if piece[:cut] in normal and piece[cut:] in normal]
    return [(left, right) for _, _, _, left, right in sorted(merges)]


def from_sentencepiece(name, model):
    """Tokenizers of the `tokenizers` package with the pieces of a SentencePiece model."""
    proto = proto_of(model)
    if name == "unigram":  # T5's pipeline
        tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in proto.pieces], unk_id=2, byte_fallback=False))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap),
                                                     normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)
        tokenizer.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
        tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in ("<pad>", "</s>", "<unk>")])
        return tokenizer
    vocab = {piece.piece: index for index, piece in enumerate(proto.pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, ranked_merges(proto), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if name == "mistral":  # as transformers writes it with "legacy": false
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in ("<unk>", "<s>", "</s>")])
    return tokenizer


def normalized(name, corpus, vocab_size):
    """Steps of other families: compatibility forms, case, accents, words, punctuation; unigram with byte fallback."""
    tokenizer = Tokenizer(models.Unigram())
    if name == "nfkc":
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace()])
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Replace(Regex(r"\d+"), "0"), normalizers.NFD()])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Split(Regex(r"\w\s?\w"), "contiguous")])
    trainer = trainers.UnigramTrainer(vocab_size=vocab_size, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    state = json.loads(tokenizer.to_str())
    if name == "nfkc":
        # Byte tokens have the worst score; unseen characters become bytes.
        worst = min(score for _, score in state["model"]["vocab"])
        state["model"]["vocab"] += [[f"<0x{byte:02X}>", worst - 1] for byte in range(256)]
        state["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


BYTE_LEVEL = ("gpt2", "gpt2_prefix", "llama3", "qwen2", "smollm2", "cased", "behaviors")
SENTENCEPIECE = ("spm_llama", "spm_mistral", "spm_unigram")
FROM_SENTENCEPIECE = {"llama": "spm_llama", "mistral": "spm_llama", "unigram": "spm_unigram"}


def train(name, corpus, vocab_size, spm):
    """A tokenizer of the `tokenizers` package; `spm` maps the names of SENTENCEPIECE to the bytes of models."""
    if name in BYTE_LEVEL:
        return byte_level(name, corpus, vocab_size)
    if name in FROM_SENTENCEPIECE:
        return from_sentencepiece(name, spm[FROM_SENTENCEPIECE[name]])
    return llama2(corpus, vocab_size) if name == "llama2" else normalized(name, corpus, vocab_size)

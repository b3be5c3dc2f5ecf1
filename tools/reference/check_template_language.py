#!/usr/bin/env python3
"""Random template expressions and statements, rendered by `ingot render` and by Jinja2. Run by `./run oracles`.

    INGOT_EXECUTABLE=build/release/ingot check_template_language.py [SEED [NUMBER]]

The seed has a fixed default, so that a run is reproducible, and is printed. When both render, the texts must be equal. What Jinja2
rejects must be an error in Ingot. What only Ingot rejects must be one of the documented errors (BY_NAME), and is counted. Exit
status 1 at a difference.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transformers.utils.chat_template_utils import _compile_jinja_template

ROOT = Path(__file__).resolve().parents[2]
INGOT = os.environ.get("INGOT_EXECUTABLE", str(ROOT / "build/release/ingot"))
SEED = 1  # default
VARIABLES = {
    "s": "Hello, World", "u": " \u00dcn\u00efc\u00f6de \u00df \ufb01 \u01c6 \u0391\u03a3 \U0001F600\u200b\u00a0", "e": "", "n": 7, "m": -3, "f": 2.5, "g": -0.125,
    "t": True, "o": None, "l": [3, 1, 2, 1], "w": ["b", "A", "a", "C"], "x": [1, 2.5, "x", None, [True, {"k": "v"}]],
    "d": {"b": 1, "a": {"c": [1, 2]}, "k y": "z", "items": 5}, "r": [{"name": "Al", "age": 3}, {"name": "Bo"}, {"name": "cy", "age": 0}],
}
BY_NAME = ("not supported", "too large", "unsupported operands", "formatting with", "has no item", "a dict key of type", "is printed", "put | list",
           "with the method", "round to", "with a limit", "nan cannot be ordered")


class Maker:
    """Random expressions by type. Most are valid, so that most have a value."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *choices):
        return self.random.choice(choices)

    def any(self, depth):
        return self.pick(self.string, self.string, self.integer, self.number, self.boolean, self.list, self.dict, self.odd)(depth)

    def odd(self, depth):
        if depth <= 0:
            return self.pick("missing", "none", "o", "x[3]", "d.nothing", "r[1].age")
        return self.pick(lambda: f"({self.any(depth - 1)} if {self.boolean(depth - 1)} else {self.any(depth - 1)})",
                         lambda: f"({self.any(depth - 1)} {self.pick('or', 'and')} {self.any(depth - 1)})",
                         lambda: f"({self.any(depth - 1)} | default({self.any(depth - 1)}{self.pick('', ', true')}))",
                         lambda: f"x[{self.integer(depth - 1)}]", lambda: f"d[{self.string(depth - 1)}]", lambda: f"d.get({self.string(depth - 1)})",
                         lambda: f"({self.list(depth - 1)} | {self.pick('first', 'last', 'max', 'min')})")()

    def string(self, depth):
        if depth <= 0:
            return self.pick("s", "u", "e", "'a b'", "'x\\ny'", "\"it's\"", "'q\"\\'\\\\'", "'\\u00e9\\t'", "'12'", "' 3.50 '", "'a-b-c'", "'AbC'")
        a = self.string(depth - 1)
        return self.pick(
            lambda: f"({a} + {self.string(depth - 1)})", lambda: f"({self.any(depth - 1)} ~ {self.any(depth - 1)})", lambda: f"({a} * {self.pick('2', '0', '-1', 'm', 't')})",
            lambda: f"{a}.{self.pick('upper', 'lower', 'title', 'capitalize', 'strip', 'lstrip', 'rstrip')}()",
            lambda: f"{a}.{self.pick('strip', 'lstrip', 'rstrip')}({self.string(0)})",
            lambda: f"({a} | {self.pick('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'reverse', 'indent', 'indent(2, true)', 'indent(1, blank=true)')})",
            lambda: f"{a}.replace({self.string(0)}, {self.string(0)}{self.pick('', ', 1', ', -1')})", lambda: f"({a} | replace({self.string(0)}, {self.string(0)}))",
            lambda: f"{a}[{self.slice()}]", lambda: f"{a}[{self.integer(0)}]", lambda: f"({self.list(depth - 1)} | join({self.pick('', self.string(0))}))",
            lambda: f"({self.any(depth - 1)} | tojson{self.pick('', '(indent=2)', '(sort_keys=true)', '(ensure_ascii=true)', '(separators=(chr0, chr1))').replace('chr0', repr(',')).replace('chr1', repr(':'))})",
            lambda: f"({self.any(depth - 1)} | string)", lambda: f"'%s|%s' % ({self.any(depth - 1)}, {self.any(depth - 1)})", lambda: f"'{{}}:{{}}'.format({self.any(depth - 1)}, {self.any(depth - 1)})",
            lambda: f"{a}.{self.pick('removeprefix', 'removesuffix')}({self.string(0)})", lambda: f"{a}.{self.pick('center', 'ljust', 'rjust')}({self.integer(0)}, {self.pick(repr('*'), repr(chr(233)))})",
            lambda: f"{a}.zfill({self.integer(0)})", lambda: f"({self.dict(depth - 1)} | string)")()

    def integer(self, depth):
        if depth <= 0:
            return self.pick("n", "m", "0", "1", "2", "-1", "10", "3", "t")
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        return self.pick(lambda: f"({a} {self.pick('+', '-', '*', '//', '%')} {b})", lambda: f"{a} {self.pick('+', '-', '*', '//', '%')} {b}", lambda: f"-{a}", lambda: f"({self.any(depth - 1)} | length)",
                         lambda: f"({self.any(depth - 1)} | int)", lambda: f"({self.any(depth - 1)} | int(9))", lambda: f"({a} | abs)", lambda: f"{self.string(depth - 1)}.{self.pick('find', 'rfind', 'count')}({self.string(0)})",
                         lambda: f"({self.pick('2', '3', 'm')} ** {self.pick('0', '1', '3', '2')})", lambda: f"({self.pick('l', '[1, 2]')} | sum)", lambda: f"({self.string(depth - 1)} | wordcount)")()

    def number(self, depth):
        if depth <= 0:
            return self.pick("f", "g", "0.1", "1e16", "1e-5", "100.0", "1.5e30", "-2.0", "3")
        a, b = self.number(depth - 1), self.number(depth - 1)
        return self.pick(lambda: f"({a} {self.pick('+', '-', '*', '/', '//', '%')} {b})", lambda: f"-{a}", lambda: f"({self.any(depth - 1)} | float)", lambda: f"({a} | round({self.pick('0', '1', '2')}))",
                         lambda: f"({a} | abs)", lambda: f"({self.integer(depth - 1)} / {self.integer(depth - 1)})", lambda: f"({self.pick('f', '2')} ** {self.pick('0.5', '-1', '2')})")()

    def boolean(self, depth):
        if depth <= 0:
            return self.pick("true", "false", "t", "not t", "(missing is defined)")
        a = self.any(depth - 1)
        tests = ("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true", "false", "callable", "in [1, 'a b', none]", "equalto 1", "eq(s)", "ne 2")
        return self.pick(lambda: f"({a} {self.pick('==', '!=')} {self.any(depth - 1)})", lambda: f"({self.number(depth - 1)} {self.pick('<', '<=', '>', '>=', '==')} {self.integer(depth - 1)})",
                         lambda: f"({self.string(depth - 1)} {self.pick('<', '>=', 'in', 'not in')} {self.string(depth - 1)})", lambda: f"({a} {self.pick('in', 'not in')} {self.list(depth - 1)})",
                         lambda: f"({a} is {self.pick('', 'not ')}{self.pick(*tests)})", lambda: f"(not {a})", lambda: f"({self.integer(depth - 1)} is {self.pick('odd', 'even', 'divisibleby 2')})",
                         lambda: f"{self.string(depth - 1)}.{self.pick('startswith', 'endswith')}({self.string(0)})", lambda: f"{self.string(depth - 1)}.{self.pick('isalpha', 'isalnum', 'isspace', 'islower', 'isupper')}()",
                         lambda: f"({self.string(0)} in d)", lambda: f"({self.integer(0)} < {self.number(0)} <= {self.integer(0)})", lambda: f"({self.string(depth - 1)} is {self.pick('lower', 'upper')})")()

    def slice(self):
        bound = lambda: self.pick("", "1", "-2", "m", "n", "none", "-9")
        return f"{bound()}:{bound()}{self.pick('', '', ':-1', ':2', ':')}"

    def list(self, depth):
        if depth <= 0:
            return self.pick("l", "w", "x", "[]", "[1, 'a']", "(1, s)", "r", "[none, 2.0]")
        a = self.list(depth - 1)
        return self.pick(lambda: f"{a}[{self.slice()}]", lambda: f"({a} + {self.list(0)})", lambda: f"({self.pick('l', 'w', a)} | sort{self.pick('', '(reverse=true)', '(case_sensitive=true)')})",
                         lambda: f"({a} | {self.pick('list', 'unique | list', 'reverse | list', 'select | list', 'reject | list')})", lambda: f"[{self.any(depth - 1)}, {self.any(depth - 1)}]",
                         lambda: f"({a} | {self.pick('select', 'reject')}('{self.pick('string', 'number', 'none', 'defined')}') | list)", lambda: f"(r | map(attribute='{self.pick('name', 'age', 'x.y')}'{self.pick('', ', default=1')}) | list)",
                         lambda: f"(r | {self.pick('selectattr', 'rejectattr')}({self.pick(repr('age'), repr('age') + ',' + repr('defined'), repr('name') + ',' + repr('eq') + ',' + repr('Bo'))}) | list)",
                         lambda: f"({a} | map('{self.pick('string', 'upper', 'length', 'tojson')}') | list)", lambda: f"{self.string(depth - 1)}.split({self.pick('', repr(' '), repr('-'), repr('l') + ', 1')})",
                         lambda: f"{self.string(depth - 1)}.{self.pick('splitlines()', 'partition(' + repr(' ') + ')', 'rpartition(' + repr('o') + ')', 'rsplit(' + repr('-') + ', 1)')}",
                         lambda: f"(d | {self.pick('list', 'dictsort', 'items | list')})", lambda: f"(d.{self.pick('keys', 'values', 'items')}() | list)", lambda: f"(range({self.integer(0)}) | list)", lambda: f"({a} * {self.pick('2', '0')})",
                         lambda: f"({self.string(depth - 1)} | list)")()

    def dict(self, depth):
        if depth <= 0:
            return self.pick("d", "{}", "r[0]", "{'a': 1}", "d.a")
        return self.pick(lambda: f"{{{self.string(0)}: {self.any(depth - 1)}, 'z': {self.any(depth - 1)}}}", lambda: f"dict({self.dict(0)}, q={self.any(depth - 1)})", lambda: f"{{{self.integer(0)}: {self.any(depth - 1)}}}", lambda: "d.copy()")()

    def statement(self, depth):
        """A template with expressions, and with names that are set in scopes."""
        name = self.pick("a1", "a2", "a3")
        body = lambda: self.statement(depth - 1) if depth > 0 else f"{{{{ {self.pick('a1', 'a2', 'a3', 'loop.index', 'ns.v')} }}}}"
        dash = lambda: self.pick("", "", "-", "+")
        space = lambda: self.pick("", " ", "\n", "\n  ", "  \n")
        tag = lambda text: "{%" + dash() + " " + text + " " + dash() + "%}"
        return space() + self.pick(
            lambda: tag(f"set {name} = {self.any(1)}") + space() + body(), lambda: tag(f"if {self.boolean(1)}") + space() + body() + space() + tag("else") + body() + space() + tag("endif") + space(),
            lambda: tag(f"for {name} in {self.list(1)}{self.pick('', ' if ' + self.boolean(1))}") + space() + body() + space() + self.pick("", tag("else") + body()) + tag("endfor") + space(),
            lambda: tag(f"set {name}") + body() + tag("endset") + space(), lambda: tag(f"set ns.v = {self.any(1)}") + body(), lambda: "{#" + dash() + " c " + self.pick("", "-") + "#}" + space() + body(),
            lambda: tag("filter " + self.pick("upper", "trim", "replace('a', 'b')")) + body() + tag("endfilter"), lambda: body() + space() + body(),
            lambda: "{{" + self.pick("", "-") + " " + self.any(2) + " " + self.pick("", "-") + "}}" + space() + body(),
            lambda: "{{ mac(" + self.pick("", self.any(1), "p=" + self.any(1), "*[" + self.any(1) + "]") + ") }}" + body())()


PRELUDE = ("{%- set ns = namespace(v=0) -%}{%- macro mac(p, q='Q') -%}<{{ p }}|{{ q }}|{{ a1 }}|{{ ns.v }}>{%- endmacro -%}")


def by_jinja(source):
    try:
        return _compile_jinja_template(source).render(messages=[], tools=None, documents=None, add_generation_prompt=False, bos_token="", eos_token="", **VARIABLES)
    except Exception:  # whatever Python raises
        return None


def by_ingot(source, work, place):
    template, variables, messages = work / f"{place}.jinja", work / "variables.json", work / "messages.json"
    template.write_bytes(source.encode())
    done = subprocess.run([INGOT, "render", "--json", "--template", template, "--messages", messages, "--variables", variables, "--no-generation-prompt"], capture_output=True, text=True)
    return (json.loads(done.stdout)["text"], "") if done.returncode == 0 else (None, done.stderr.strip())


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else SEED
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 400
    maker, counts, differing = Maker(seed), {"equal": 0, "errors in both": 0, "refused by name": 0}, 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        work = Path(folder)
        (work / "variables.json").write_text(json.dumps(VARIABLES))
        (work / "messages.json").write_text("[]")
        # Expressions that Jinja2 renders go in batches, the rest one by one.
        good, rest = [], []
        for _ in range(number * 10):
            source = "{{ " + maker.any(3) + " }}"
            (rest if by_jinja(source) is None else good).append(source)
        sources = ["\n--\n".join(good[i:i + 20]) for i in range(0, len(good), 20)] + rest[:number] + [PRELUDE + maker.statement(4) for _ in range(number)]
        pending = list(sources)
        while pending:
            answers = pool.map(lambda item: by_ingot(item[1], work, item[0]), enumerate(pending))
            again = []
            for source, (found, error) in zip(pending, answers):
                expected = by_jinja(source)
                parts = source.split("\n--\n")
                if found == expected is not None:
                    counts["equal"] += len(parts)
                elif len(parts) > 1:
                    again += parts
                elif found is None and expected is None:
                    counts["errors in both"] += 1
                elif found is None and any(part in error for part in BY_NAME):
                    counts["refused by name"] += 1
                else:
                    differing += 1
                    print(f"DIFFERS {source!r}\n  jinja2: {expected!r}\n  ingot:  {found!r} {error}")
            pending = again
    print(f"template language, seed {seed}: " + ", ".join(f"{count} {what}" for what, count in counts.items()) + f", {differing} differ")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()

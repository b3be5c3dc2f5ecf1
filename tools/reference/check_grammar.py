#!/usr/bin/env python3
"""Grammars compiled from JSON Schemas, compared with the Python package jsonschema.

For every supported draft:

1. The public JSON-Schema-Test-Suite (Debian's libtest-json-schema-acceptance-perl): no invalid case may be accepted. (Ingot
   asserts formats, so cases in which formats are annotations are left to check 2.)
2. Random schemas, and the suite's schemas of draft 2020-12: texts are sampled from the masks, and each must parse and be valid by
   jsonschema, with numbers read as decimals. Names and values come from small sets, so that conditions interact.
3. Some of the random schemas with a fixed list of texts, through `ingot grammar check`: no text that jsonschema rejects may be
   accepted.

The share of supported schemas must be at least LEAST_SUPPORTED, and the share of valid texts that are rejected at most
MOST_MISSED, so that a change that rejects more is noticed.

    check_grammar.py [SEED [SCHEMAS]]     (1, 1500)
"""
import decimal
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SUITES = Path("/usr/share/perl5/auto/share/dist/Test-JSON-Schema-Acceptance/tests")
SUITE = SUITES / "draft2020-12"
# From old to new: the suite's folder, the metaschema and the class of jsonschema.
DRAFTS = [
    ("draft4", "http://json-schema.org/draft-04/schema#", jsonschema.Draft4Validator),
    ("draft6", "http://json-schema.org/draft-06/schema#", jsonschema.Draft6Validator),
    ("draft7", "http://json-schema.org/draft-07/schema#", jsonschema.Draft7Validator),
    ("draft2019-09", "https://json-schema.org/draft/2019-09/schema", jsonschema.Draft201909Validator),
    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema", jsonschema.Draft202012Validator),
]
NAMES = ["a", "b", "ab", "name", "x-1", 'q"\\', "\u00e9"]
PATTERNS = ["^a", "b$", "^[a-c]+$", "^x-", "\\d{2,}", "^(?!ab)[a-z]{1,4}$", "a|^b", "^.{3}$", "[^a-z]"]
LEAST_SUPPORTED = 0.66  # of all schemas; 83 % were on 2026-11-24
MOST_MISSED = 0.08  # of the valid texts of supported schemas; 4 % were
FORMATS = ["date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "hostname", "uri", "json-pointer", "duration"]


def string_schema(draw):
    schema = {"type": "string"}
    for key, values in (("minLength", [0, 1, 3]), ("maxLength", [1, 3, 6]), ("pattern", PATTERNS), ("enum", [NAMES, NAMES[:2]])):
        if draw.random() < 0.3:
            schema[key] = draw.choice(values)
    if draw.random() < 0.2:
        schema = {"type": "string", "format": draw.choice(FORMATS)}
    return schema


def number_schema(draw):
    schema = {"type": draw.choice(["integer", "number"])}
    for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if draw.random() < 0.3:
            schema[key] = draw.choice([-100, -7.5, -1, 0, 0.25, 1, 3, 9.99, 12, 1000])
    if draw.random() < 0.25:
        schema["multipleOf"] = draw.choice([1, 2, 7, 0.5, 0.01, 1.5])
    return schema


def array_schema(draw, depth):
    schema = {"type": "array"}
    if draw.random() < 0.7:
        schema["items"] = any_schema(draw, depth - 1)
    if draw.random() < 0.3:
        schema["prefixItems"] = [any_schema(draw, depth - 1) for _ in range(draw.randint(1, 2))]
    if draw.random() < 0.3:
        schema["minItems"] = draw.randint(0, 3)
    if draw.random() < 0.5:
        schema["maxItems"] = draw.randint(0, 4)
    if draw.random() < 0.2:
        schema["uniqueItems"] = True
    if draw.random() < 0.2:
        schema["contains"] = any_schema(draw, depth - 1)
        if draw.random() < 0.5:
            schema["maxContains"] = draw.randint(1, 2)
        if draw.random() < 0.3:
            schema["minContains"] = draw.randint(0, 2)
    return schema


def object_schema(draw, depth):
    schema = {"type": "object"}
    names = draw.sample(NAMES, draw.randint(0, 4))
    if names:
        schema["properties"] = {name: any_schema(draw, depth - 1) for name in names}
    if draw.random() < 0.4:
        schema["required"] = draw.sample(NAMES, draw.randint(1, 2))
    if draw.random() < 0.4:
        schema["additionalProperties"] = draw.choice([False, any_schema(draw, depth - 1)])
    if draw.random() < 0.2:
        schema["patternProperties"] = {draw.choice(PATTERNS): any_schema(draw, depth - 1)}
    if draw.random() < 0.15:
        schema["propertyNames"] = string_schema(draw)
    if draw.random() < 0.2:
        schema["minProperties"] = draw.randint(0, 3)
    if draw.random() < 0.2:
        schema["maxProperties"] = draw.randint(0, 3)
    if draw.random() < 0.15:
        schema["dependentRequired"] = {draw.choice(NAMES): draw.sample(NAMES, 1)}
    return schema


def any_schema(draw, depth):
    if depth <= 0:
        return draw.choice([string_schema, number_schema])(draw)
    kind = draw.randrange(12)
    if kind < 2:
        return string_schema(draw)
    if kind < 4:
        return number_schema(draw)
    if kind < 5:
        return {"enum": [draw.choice([None, True, 0, 1, 1.5, "a", [1], {"a": 1}]) for _ in range(draw.randint(1, 3))]}
    if kind < 6:
        return draw.choice([{}, True, {"type": ["null", "boolean"]}, {"const": "a"}, {"type": ["string", "integer"]}])
    if kind < 8:
        return array_schema(draw, depth)
    if kind < 10:
        return object_schema(draw, depth)
    parts = [any_schema(draw, depth - 1) for _ in range(draw.randint(1, 3))]
    schema = draw.choice([{}, {}, object_schema(draw, 1)])
    how = draw.randrange(5)
    if how < 3:
        schema[("anyOf", "oneOf", "allOf")[how]] = parts
    elif how == 3:
        schema["not"] = parts[0]
    else:
        schema.update({"if": parts[0], "then": parts[-1]})
        if draw.random() < 0.5:
            schema["else"] = any_schema(draw, depth - 1)
    return schema


def in_draft(schema, age):
    """The same conditions with the keywords of an older draft. Parts without such a keyword remain as annotations."""
    if isinstance(schema, list):
        return [in_draft(part, age) for part in schema]
    if not isinstance(schema, dict):
        return {} if schema is True and age == 0 else schema
    made = {}
    for key, value in schema.items():
        if key in ("enum", "const", "required"):
            made[key] = value
        elif key in ("properties", "patternProperties"):
            made[key] = {name: in_draft(part, age) for name, part in value.items()}
        elif key == "dependentRequired" and age <= 2:
            made["dependencies"] = value
        elif key == "items" and age <= 3 and "prefixItems" in schema:
            made["additionalItems"] = in_draft(value, age)
        elif key == "prefixItems" and age <= 3:
            made["items"] = in_draft(value, age)
        elif key in ("exclusiveMinimum", "exclusiveMaximum") and age == 0:
            made[key[9].lower() + key[10:]] = value
            made[key] = True
        elif key in ("minimum", "maximum") and age == 0 and "exclusive" + key.capitalize() in schema:
            continue
        else:
            made[key] = in_draft(value, age)
    return made


def validator_of(schema):
    """jsonschema's validator of the schema's draft, which accepts integers as decimals."""
    exact = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
    uri = exact.pop("$schema", DRAFTS[-1][1]) if isinstance(exact, dict) else DRAFTS[-1][1]
    kind = next((draft[2] for draft in DRAFTS if draft[1].rstrip("#") == uri.rstrip("#")), jsonschema.Draft202012Validator)
    if kind is not jsonschema.Draft4Validator:
        def is_integer(_, value):
            if isinstance(value, bool):
                return False
            return isinstance(value, int) or (isinstance(value, decimal.Decimal) and value == value.to_integral_value())
        kind = jsonschema.validators.extend(kind, type_checker=kind.TYPE_CHECKER.redefine("integer", is_integer))
    return kind(exact, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def make_tokenizer(folder):
    """A byte-level vocabulary with pieces of JSON."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [json.dumps(json.loads(path.read_text())) for path in sorted(SUITE.glob("*.json"))]
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=["<end>"], show_progress=False,
                                  max_token_length=12, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text[i:i + 64] for text in texts for i in range(0, len(text), 64)], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))


def ingot(*arguments):
    done = subprocess.run([os.environ["INGOT_EXECUTABLE"], *map(str, arguments)], capture_output=True, text=True,
                          check=False)
    if done.returncode not in (0, 70):
        sys.exit(f"ingot {arguments[0]} {arguments[1]} failed ({done.returncode}): {done.stderr}")
    return done


def check_suites(model):
    results = []
    for folder, uri, _ in DRAFTS:
        done = ingot("bench", "grammar", "--model", model, "--suite", SUITES / folder, "--draft", uri)
        print(f"{folder}: {done.stdout.strip()}")
        results.append(done.returncode == 0)
    return all(results)


TEXTS = [json.dumps(value) for value in [
    None, True, 0, 1, -1, 12, 1.5, 0.25, 1000, 9.99, "", "a", "b", "ab", "abc", "\u00e9", "10.0.0.1", "2024-02-29", [], [1], ["a"],
    [1, 1], [1, "a", None], ["a", "b", "a"], [[]], [{}], {}, {"a": 1}, {"b": "ab"}, {"a": "a", "b": 2}, {"b": 2, "a": "a"},
    {"x-1": None, "ab": 1.5}, {"name": "a", "a": 0, "b": 3}, {"\u00e9": 12}, {"a": {"b": 1}}, {"a": [1, 2]}]]
TEXTS += ["1.0", "1e1", "1.5e0", "2E-1", "-0", '"\\u0061"', '{"\\u0061": 1, "b":  2}', '{"a": 1, "a": "a"}', '{"b":1,"x-1":"a","b":2}']


def check_texts(schemas, folder):
    """No text that jsonschema rejects may be accepted. In an object with a duplicate name the last value counts."""
    (folder / "texts.jsonl").write_text("".join(text + "\n" for text in TEXTS))
    supported = accepted = wrong = missed = 0
    for schema in schemas:
        (folder / "schema.json").write_text(json.dumps(schema))
        result = json.loads(ingot("grammar", "check", "--json-schema", folder / "schema.json", "--instances",
                                  folder / "texts.jsonl", "--json").stdout)
        supported += result["supported"]
        validator = validator_of(schema)
        for text, is_accepted in zip(TEXTS, result["results"]):
            is_valid = validator.is_valid(json.loads(text, parse_float=decimal.Decimal))
            accepted += bool(is_accepted)
            missed += is_valid and not is_accepted
            if is_accepted and not is_valid:
                wrong += 1
                print(f"ACCEPTED {text}\n  {json.dumps(schema)}")
    print(f"{len(schemas)} schemas, {supported} supported, with {len(TEXTS)} texts: {accepted} accepted, {wrong} of them not valid; "
          f"{missed} valid ones not")
    return wrong == 0 and supported >= LEAST_SUPPORTED * len(schemas) and missed <= MOST_MISSED * (accepted + missed)


# Of the quotient of a remainder: texts that are drawn have numbers with long exponents, which multipleOf divides.
decimal.getcontext().prec = 100_000


def check_samples(model, schemas, folder):
    lines = folder / "schemas.jsonl"
    lines.write_text("".join(json.dumps(schema, ensure_ascii=False) + "\n" for schema in schemas))
    results = [json.loads(line) for line in ingot("bench", "grammar", "--model", model, "--sample", lines).stdout.split("\n") if line]
    assert len(results) == len(schemas), f"{len(results)} results of {len(schemas)} schemas"
    texts = wrong = refused = 0
    for schema, result in zip(schemas, results):
        if "error" in result:
            refused += 1
            continue
        validator = validator_of(schema)
        for text in result["texts"]:
            texts += 1
            try:
                validator.validate(json.loads(text, parse_float=decimal.Decimal))
            except (ValueError, jsonschema.ValidationError) as error:
                wrong += 1
                if wrong <= 20:
                    print(f"INVALID {json.dumps(schema)}\n  {text}\n  {str(error).splitlines()[0]}")
    print(f"{len(schemas)} schemas, {refused} refused; {texts} texts sampled, {wrong} of them not valid")
    return wrong == 0 and texts > len(schemas) and len(schemas) - refused >= LEAST_SUPPORTED * len(schemas)


def main():
    if not SUITE.is_dir():
        print(f"left out: {SUITE} is missing; install libtest-json-schema-acceptance-perl")
        sys.exit(77)
    draw = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1500
    known = [group["schema"] for path in sorted(SUITE.glob("*.json")) for group in json.loads(path.read_text())]
    known = [schema for schema in known if "$ref" not in json.dumps(schema) and "vocabulary" not in json.dumps(schema)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tokenizer(folder)
        drawn = []
        for i in range(count):
            schema = in_draft(any_schema(draw, 3), i % len(DRAFTS))
            drawn.append({"$schema": DRAFTS[i % len(DRAFTS)][1], **schema} if isinstance(schema, dict) else schema)
        results = [check_suites(folder), check_samples(folder, known + drawn, folder), check_texts(drawn[:300], folder)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""JSON Schemas as grammars against the Python package jsonschema.

Two checks, both with `ingot bench grammar`:

1. The public JSON-Schema-Test-Suite, draft 2020-12, as Debian's libtest-json-schema-acceptance-perl installs it: no case
   that is invalid may be accepted. (The formats are asserted, so cases that say they are annotations are left to check 2.)
2. Random schemas, and the suite's own: texts are drawn from masks, and each must parse and be valid by jsonschema, with
   numbers read as decimals. Names and values are drawn from few, so that conditions meet.

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

SUITE = Path("/usr/share/perl5/auto/share/dist/Test-JSON-Schema-Acceptance/tests/draft2020-12")
NAMES = ["a", "b", "ab", "name", "x-1", 'q"\\', "\u00e9"]
PATTERNS = ["^a", "b$", "^[a-c]+$", "^x-", "\\d{2,}", "^(?!ab)[a-z]{1,4}$", "a|^b", "^.{3}$", "[^a-z]"]
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


def make_tokenizer(folder):
    """A byte-level vocabulary of JSON's pieces."""
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
    done = subprocess.run([os.environ["INGOT_EXECUTABLE"], "bench", "grammar", *map(str, arguments)],
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 70):
        sys.exit(f"ingot bench grammar failed ({done.returncode}): {done.stderr}")
    return done


def check_suite(model):
    done = ingot("--model", model, "--suite", SUITE)
    print(done.stdout.strip())
    return done.returncode == 0


def check_samples(model, schemas, folder):
    lines = folder / "schemas.jsonl"
    lines.write_text("".join(json.dumps(schema, ensure_ascii=False) + "\n" for schema in schemas))
    results = [json.loads(line) for line in ingot("--model", model, "--sample", lines).stdout.split("\n") if line]
    assert len(results) == len(schemas), f"{len(results)} results of {len(schemas)} schemas"
    texts = wrong = refused = 0
    for schema, result in zip(schemas, results):
        if "error" in result:
            refused += 1
            continue
        exact = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
        validator = jsonschema.Draft202012Validator(
            exact, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for text in result["texts"]:
            texts += 1
            try:
                validator.validate(json.loads(text, parse_float=decimal.Decimal))
            except (ValueError, jsonschema.ValidationError) as error:
                wrong += 1
                if wrong <= 20:
                    print(f"INVALID {json.dumps(schema)}\n  {text}\n  {str(error).splitlines()[0]}")
    print(f"{len(schemas)} schemas, {refused} refused; {texts} texts drawn, {wrong} of them not valid")
    return wrong == 0 and texts > len(schemas)


def main():
    if not SUITE.is_dir():
        print(f"left out: {SUITE} is not here; the package libtest-json-schema-acceptance-perl brings it")
        sys.exit(77)
    draw = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1500
    known = [group["schema"] for path in sorted(SUITE.glob("*.json")) for group in json.loads(path.read_text())]
    known = [schema for schema in known if "$ref" not in json.dumps(schema) and "vocabulary" not in json.dumps(schema)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tokenizer(folder)
        results = [check_suite(folder), check_samples(folder, known + [any_schema(draw, 3) for _ in range(count)], folder)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()

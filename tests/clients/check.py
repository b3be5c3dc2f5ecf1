"""Runs OpenAI's Python client against a server: check.py BASE_URL KEY MODEL. Called by tools/clients.sh."""
import json
import re
import sys
import time
import urllib.request

import openai

base_url, key, model = sys.argv[1:4]
client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=120)
question = [{"role": "user", "content": "Say something."}]


def refused(kind, call, param=None, code=None):
    try:
        call()
    except kind as error:
        assert param is None or error.param == param, (error.param, param)
        assert code is None or error.code == code, (error.code, code)
        return
    raise AssertionError(f"no {kind.__name__}")


def models():
    assert model in [m.id for m in client.models.list()]
    assert client.models.retrieve(model).id == model
    refused(openai.NotFoundError, lambda: client.models.retrieve("nobody/nothing"), "model", "model_not_found")


def chat():
    fields = dict(model=model, messages=question, max_tokens=24, temperature=0)
    whole = client.chat.completions.create(**fields)
    text = whole.choices[0].message.content
    assert whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage == whole.usage or chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    drawn = dict(model=model, messages=question, max_tokens=24, temperature=1, seed=7, n=3)
    first, second = (client.chat.completions.create(**drawn) for _ in range(2))
    assert [c.message.content for c in first.choices] == [c.message.content for c in second.choices]
    assert len({c.message.content for c in first.choices}) > 1
    scored = client.chat.completions.create(**fields, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert scored and all(len(t.top_logprobs) == 2 and t.logprob <= 0 and t.top_logprobs[0].token == t.token for t in scored)
    stop = text[3:6]
    if stop.isascii() and stop:
        cut = client.chat.completions.create(**fields, stop=[stop]).choices[0].message.content
        assert cut == text[: text.find(stop)], (cut, text, stop)


def streams_by_helper():
    # The client treats an answer that ended by length as an error, so this one ends at a stop string.
    fields = dict(model=model, messages=question, max_tokens=200, temperature=1, seed=3, stop=["e", "a", "t", "i"])
    with client.chat.completions.stream(**fields) as stream:
        content = [event.content for event in stream if event.type == "content.done"]
    assert content == [stream.get_final_completion().choices[0].message.content]


def completions():
    fields = dict(model=model, prompt=["The sea is", "A house"], max_tokens=12, temperature=0)
    whole = client.completions.create(**fields)
    assert [c.index for c in whole.choices] == [0, 1]
    texts = ["", ""]
    for chunk in client.completions.create(**fields, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [c.text for c in whole.choices]
    scored = client.completions.create(model=model, prompt="The sea is", max_tokens=4, temperature=0, logprobs=3, echo=False)
    assert len(scored.choices[0].logprobs.tokens) == scored.usage.completion_tokens
    scored = client.completions.create(model=model, prompt="The sea is", max_tokens=0, logprobs=2, echo=True)
    assert scored.choices[0].text == "The sea is" and scored.usage.completion_tokens == 0
    logprobs = scored.choices[0].logprobs
    assert len(logprobs.token_logprobs) == len(logprobs.text_offset) == scored.usage.prompt_tokens
    assert logprobs.token_logprobs[0] is None and all(one <= 0 for one in logprobs.token_logprobs[1:]), logprobs
    refused(openai.BadRequestError, lambda: client.completions.create(model=model, prompt="a", max_tokens=0), "max_tokens")


def embeddings():
    coded = client.embeddings.create(model=model, input=["a", "the sea"])  # sent as base64
    plain = client.embeddings.create(model=model, input=["a", "the sea"], encoding_format="float")
    assert [d.embedding for d in coded.data] == [d.embedding for d in plain.data] or all(
        abs(x - y) < 1e-6 for a, b in zip(coded.data, plain.data) for x, y in zip(a.embedding, b.embedding))
    assert abs(sum(x * x for x in coded.data[0].embedding) - 1) < 1e-4
    refused(openai.BadRequestError, lambda: client.embeddings.create(model=model, input="a", dimensions=1), "dimensions")


def tools_by_choice_of_the_model():
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    reply = client.chat.completions.create(model=model, messages=question, tools=tools, max_tokens=8, temperature=0)
    assert reply.choices[0].message.content or reply.choices[0].message.tool_calls


def json_by_schema():
    # The schema forces the output; its fixed lengths end the answer before max_tokens.
    schema = {"type": "object", "properties": {"kind": {"enum": ["boat", "house"]}, "size": {"type": "boolean"}},
              "required": ["kind", "size"], "additionalProperties": False}
    fields = dict(model=model, messages=question, max_tokens=200, temperature=1, seed=5,
                 response_format={"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}})
    reply = client.chat.completions.create(**fields).choices[0]
    assert reply.finish_reason == "stop", reply
    value = json.loads(reply.message.content)
    assert set(value) == {"kind", "size"} and value["kind"] in ("boat", "house") and isinstance(value["size"], bool), value
    chunks = client.chat.completions.create(**fields, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == reply.message.content
    fields["response_format"]["json_schema"]["schema"] = {"type": "object", "$ref": "https://example.org/elsewhere"}
    refused(openai.BadRequestError, lambda: client.chat.completions.create(**fields), "response_format")


def tools_that_are_demanded():
    # A schema with a nested model, in pydantic's form.
    colour = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"],
              "additionalProperties": False}
    parameters = {"$defs": {"Paint": colour}, "type": "object", "properties": {"paint": {"$ref": "#/$defs/Paint"}},
                  "required": ["paint"], "additionalProperties": False}
    other = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "look", "parameters": other}},
             {"type": "function", "function": {"name": "paint", "parameters": parameters}}]
    fields = dict(model=model, messages=question, tools=tools, max_tokens=200, temperature=1, seed=2)

    def check(name, arguments):
        value = json.loads(arguments)
        if name == "look":
            assert value == {}, value
        else:
            assert name == "paint" and value["paint"]["colour"] in ("red", "blue") and len(value) == 1, (name, value)

    named = {"type": "function", "function": {"name": "paint"}}
    for choice in ("required", named):
        reply = client.chat.completions.create(**fields, tool_choice=choice).choices[0]
        assert reply.finish_reason == "tool_calls" and len(reply.message.tool_calls) == 1, reply
        function = reply.message.tool_calls[0].function
        assert choice == "required" or function.name == "paint"
        check(function.name, function.arguments)
        name = arguments = ""
        for chunk in client.chat.completions.create(**fields, tool_choice=choice, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        assert (name, arguments) == (function.name, function.arguments)


def responses():
    fields = dict(model=model, input="Say something.", max_output_tokens=24, temperature=0)
    whole = client.responses.create(**fields)
    assert whole.output_text == client.chat.completions.create(
        model=model, messages=question, max_tokens=24, temperature=0).choices[0].message.content
    assert whole.status in ("completed", "incomplete") and whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    events = list(client.responses.create(**fields, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[0].type == "response.created" and events[-1].type == f"response.{whole.status}"
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.total_tokens == whole.usage.total_tokens  # only cached_tokens differs
    schema = {"type": "object", "properties": {"kind": {"enum": ["boat", "house"]}}, "required": ["kind"], "additionalProperties": False}
    held = client.responses.create(model=model, input=[{"role": "user", "content": "Boat?"}],
                                   text={"format": {"type": "json_schema", "name": "thing", "schema": schema, "strict": True}})
    assert held.status == "completed" and json.loads(held.output_text)["kind"] in ("boat", "house"), held
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}]
    with client.responses.stream(model=model, input="Look.", tools=tools, tool_choice="required") as stream:
        call = stream.get_final_response().output[0]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "look", {}), call
    items = [{"role": "user", "content": "Look."}, call.model_dump(exclude_none=True, exclude={"parsed_arguments"}),
             {"type": "function_call_output", "call_id": call.call_id, "output": "A boat."}]
    assert client.responses.create(model=model, input=items, max_output_tokens=8).output
    refused(openai.BadRequestError, lambda: client.responses.create(model=model, input="x", previous_response_id="resp_1"),
            "previous_response_id", "unsupported_parameter")


def constraints():
    for more, expected in (({"guided_regex": "[ab]{3}"}, r"[ab]{3}"), ({"guided_choice": ["left", "right"]}, "left|right"),
                           ({"structured_outputs": {"grammar": 'root ::= "x" [yz]{2}'}}, "x[yz]{2}")):
        reply = client.completions.create(model=model, prompt="Say", max_tokens=50, seed=4, extra_body=more).choices[0]
        assert reply.finish_reason == "stop" and re.fullmatch(expected, reply.text), reply


def errors():
    def ask(**more):
        return lambda: client.chat.completions.create(**({"model": model, "messages": question} | more))

    refused(openai.BadRequestError, ask(temperature=3), "temperature")
    refused(openai.BadRequestError, ask(n=1000), "n")
    refused(openai.BadRequestError, ask(messages=[]), "messages")
    refused(openai.BadRequestError, ask(top_logprobs=2), "top_logprobs")
    refused(openai.BadRequestError, ask(extra_body={"no_such_field": 1}), "no_such_field")
    refused(openai.BadRequestError, ask(messages=[{"role": "user", "content": "word " * 100000}]), "messages",
            "context_length_exceeded")
    refused(openai.NotFoundError, ask(model="nobody"), "model", "model_not_found")
    stranger = openai.OpenAI(base_url=base_url, api_key="wrong-key-wrong-key", max_retries=0)
    refused(openai.AuthenticationError, stranger.models.list, code="invalid_api_key")


def cancellation():
    def metric(*names):
        root = base_url.removesuffix("/v1")
        request = urllib.request.Request(root + "/metrics", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request) as reply:
            text = reply.read().decode()
        return sum(int(float(line.split()[1])) for line in text.splitlines() if line.split()[0] in names)

    fields = dict(model=model, messages=question, n=64, max_tokens=200, temperature=1, seed=1)
    whole = client.chat.completions.create(**fields).usage.completion_tokens
    before = metric("ingot_engine_tokens_total")
    stream = client.chat.completions.create(**fields, stream=True)
    next(iter(stream))
    stream.close()
    for _ in range(600):
        if metric("ingot_running_requests", "ingot_queued_requests") == 0:
            made = metric("ingot_engine_tokens_total") - before
            assert made < whole, (made, whole)
            return
        time.sleep(0.05)
    raise AssertionError("a cancelled request is still running")


for check in (models, chat, streams_by_helper, completions, embeddings, tools_by_choice_of_the_model,
              json_by_schema, tools_that_are_demanded, responses, constraints, errors, cancellation):
    check()
    print(json.dumps({"client": "python " + openai.__version__, "check": check.__name__, "result": "agrees"}), flush=True)

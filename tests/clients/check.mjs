// Runs OpenAI's JavaScript client against a server: node check.mjs BASE_URL KEY MODEL. Called by tools/clients.sh, which
// installs the client beside a copy of this file.
import assert from "node:assert/strict";
import { runInNewContext } from "node:vm";
import OpenAI from "openai";
import { VERSION } from "openai/version";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "Say something." }];

async function refused(kind, call, param, code) {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof kind, String(error));
    if (param !== undefined) assert.equal(error.param, param);
    if (code !== undefined) assert.equal(error.code, code);
    return true;
  });
}

const checks = {
  async models() {
    const ids = [];
    for await (const each of client.models.list()) ids.push(each.id);
    assert.ok(ids.includes(model));
    assert.equal((await client.models.retrieve(model)).id, model);
    await refused(OpenAI.NotFoundError, () => client.models.retrieve("nobody/nothing"), "model", "model_not_found");
  },

  async chat() {
    const asked = { model, messages, max_tokens: 24, temperature: 0 };
    const whole = await client.chat.completions.create(asked);
    assert.ok(["stop", "length"].includes(whole.choices[0].finish_reason));
    let text = "";
    let usage = null;
    const stream = await client.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
    const three = await client.chat.completions.create({ model, messages, max_tokens: 8, n: 3, seed: 4 });
    assert.equal(three.choices.length, 3);
  },

  async streamsByHelper() {
    const runner = client.chat.completions.stream({ model, messages, max_tokens: 16, temperature: 0 });
    let text = "";
    runner.on("content", (piece) => (text += piece));
    assert.equal(await runner.finalContent(), text);
  },

  async completions() {
    const asked = { model, prompt: ["The sea is", "A house"], max_tokens: 12, temperature: 0 };
    const whole = await client.completions.create(asked);
    const texts = ["", ""];
    for await (const chunk of await client.completions.create({ ...asked, stream: true })) {
      for (const choice of chunk.choices) texts[choice.index] += choice.text;
    }
    assert.deepEqual(texts, whole.choices.map((choice) => choice.text));
    const scored = await client.completions.create({ model, prompt: "The sea is", max_tokens: 0, logprobs: 0, echo: true });
    assert.equal(scored.choices[0].text, "The sea is");
    assert.equal(scored.choices[0].logprobs.token_logprobs.length, scored.usage.prompt_tokens);
    assert.equal(scored.choices[0].logprobs.token_logprobs[0], null);
  },

  async embeddings() {
    const coded = await client.embeddings.create({ model, input: ["a", "the sea"] });
    const plain = await client.embeddings.create({ model, input: ["a", "the sea"], encoding_format: "float" });
    coded.data[1].embedding.forEach((value, i) => assert.ok(Math.abs(value - plain.data[1].embedding[i]) < 1e-6));
    await refused(OpenAI.BadRequestError, () => client.embeddings.create({ model, input: "" }), "input");
  },

  async toolsByChoiceOfTheModel() {
    const tools = [{ type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } }];
    const reply = await client.chat.completions.create({ model, messages, tools, max_tokens: 8, temperature: 0 });
    assert.ok(reply.choices[0].message.content || reply.choices[0].message.tool_calls);
  },

  async jsonBySchema() {
    const schema = {
      type: "object",
      properties: { kind: { enum: ["boat", "house"] }, size: { type: "boolean" } },
      required: ["kind", "size"],
      additionalProperties: false,
    };
    const format = { type: "json_schema", json_schema: { name: "thing", schema, strict: true } };
    const asked = { model, messages, max_tokens: 200, temperature: 1, seed: 5, response_format: format };
    const reply = (await client.chat.completions.create(asked)).choices[0];
    assert.equal(reply.finish_reason, "stop");
    const value = JSON.parse(reply.message.content);
    assert.deepEqual(Object.keys(value).sort(), ["kind", "size"]);
    assert.ok(["boat", "house"].includes(value.kind) && typeof value.size === "boolean");
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
      text += chunk.choices[0]?.delta?.content ?? "";
    }
    assert.equal(text, reply.message.content);
  },

  async toolsThatAreDemanded() {
    const colour = {
      type: "object",
      properties: { colour: { enum: ["red", "blue"] } },
      required: ["colour"],
      additionalProperties: false,
    };
    const parameters = {
      $defs: { Paint: colour },
      type: "object",
      properties: { paint: { $ref: "#/$defs/Paint" } },
      required: ["paint"],
      additionalProperties: false,
    };
    const tools = [{ type: "function", function: { name: "paint", parameters } }];
    for (const tool_choice of ["required", { type: "function", function: { name: "paint" } }]) {
      const asked = { model, messages, tools, tool_choice, max_tokens: 200, temperature: 1, seed: 2 };
      const reply = (await client.chat.completions.create(asked)).choices[0];
      assert.equal(reply.finish_reason, "tool_calls");
      assert.equal(reply.message.tool_calls.length, 1);
      const call = reply.message.tool_calls[0].function;
      assert.equal(call.name, "paint");
      assert.ok(["red", "blue"].includes(JSON.parse(call.arguments).paint.colour));
      const final = await client.chat.completions.stream(asked).finalChatCompletion();
      assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.arguments);
    }
  },

  async responses() {
    const asked = { model, input: "Say something.", max_output_tokens: 24, temperature: 0 };
    const whole = await client.responses.create(asked);
    let text = "";
    let last;
    for await (const event of await client.responses.create({ ...asked, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event;
    }
    assert.equal(text, whole.output_text);
    assert.equal(last.type, `response.${whole.status}`);
    assert.equal(last.response.usage.total_tokens, whole.usage.total_tokens);
    const tools = [{ type: "function", name: "look", parameters: { type: "object", properties: {}, additionalProperties: false } }];
    const call = (await client.responses.create({ model, input: "Look.", tools, tool_choice: "required" })).output[0];
    assert.equal(call.name, "look");
    const items = [{ role: "user", content: "Look." }, call, { type: "function_call_output", call_id: call.call_id, output: "A boat." }];
    assert.ok((await client.responses.create({ model, input: items, max_output_tokens: 8 })).output.length > 0);
    await refused(OpenAI.BadRequestError, () => client.responses.create({ ...asked, store: true }), "store");
  },

  // Runs the script of the server's page with a minimal browser: empty fields must be left out of its requests.
  async page() {
    const html = await (await fetch(baseURL.replace(/\/v1$/, "/"))).text();
    const fields = { tokens: "", seed: "", temperature: "0.5", way: "chat", prompt: "x", key: "" };
    const element = (id) => ({ value: fields[id], style: {}, selectedOptions: [{ value: model }], append() {}, replaceChildren() {} });
    const elements = {};
    const sent = [];
    const page = {
      document: { getElementById: (id) => (elements[id] ??= element(id)), createElement: () => element() },
      fetch: async (url, options) => (sent.push(options), { ok: false, status: 400, json: async () => ({ error: { message: "" } }) }),
      performance, AbortController, Option: class {}, TextDecoderStream,
    };
    runInNewContext(html.match(/<script>([^]*)<\/script>/)[1], page);
    elements.form.onsubmit({ preventDefault() {} });
    await new Promise((done) => setTimeout(done));
    const body = JSON.parse(sent.at(-1).body);
    assert.equal(body.temperature, 0.5);
    assert.ok(!("max_tokens" in body) && !("seed" in body), JSON.stringify(body));
  },

  async errors() {
    const ask = (more) => () => client.chat.completions.create({ model, messages, ...more });
    await refused(OpenAI.BadRequestError, ask({ temperature: 3 }), "temperature");
    await refused(OpenAI.BadRequestError, ask({ messages: [] }), "messages");
    await refused(OpenAI.NotFoundError, ask({ model: "nobody" }), "model", "model_not_found");
    const stranger = new OpenAI({ baseURL, apiKey: "wrong-key-wrong-key", maxRetries: 0 });
    await refused(OpenAI.AuthenticationError, () => stranger.models.list(), undefined, "invalid_api_key");
  },

  async cancellation() {
    const metric = async (...names) => {
      const reply = await fetch(baseURL.replace(/\/v1$/, "/metrics"), { headers: { Authorization: `Bearer ${apiKey}` } });
      const lines = (await reply.text()).split("\n").filter((line) => names.includes(line.split(" ")[0]));
      return lines.reduce((sum, line) => sum + Number(line.split(" ")[1]), 0);
    };
    const asked = { model, messages, n: 64, max_tokens: 200, temperature: 1, seed: 1 };
    const whole = (await client.chat.completions.create(asked)).usage.completion_tokens;
    const before = await metric("ingot_engine_tokens_total");
    const stream = await client.chat.completions.create({ ...asked, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      stream.controller.abort();
      break;
    }
    for (let tries = 0; tries < 600; ++tries) {
      if ((await metric("ingot_running_requests", "ingot_queued_requests")) === 0) {
        const made = (await metric("ingot_engine_tokens_total")) - before;
        assert.ok(made < whole, `${made} of ${whole}`);
        return;
      }
      await new Promise((done) => setTimeout(done, 50));
    }
    assert.fail("what was left goes on");
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(JSON.stringify({ client: `javascript ${VERSION}`, check: name, result: "agrees" }));
}

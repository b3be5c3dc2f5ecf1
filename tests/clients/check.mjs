// OpenAI's JavaScript client against a server: node check.mjs BASE_URL KEY MODEL. Called by tools/clients.sh, which
// installs the client beside a copy of this file.
import assert from "node:assert/strict";
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

  async errors() {
    const ask = (more) => () => client.chat.completions.create({ model, messages, ...more });
    await refused(OpenAI.BadRequestError, ask({ temperature: 3 }), "temperature");
    await refused(OpenAI.BadRequestError, ask({ messages: [] }), "messages");
    await refused(OpenAI.NotFoundError, ask({ model: "nobody" }), "model", "model_not_found");
    const stranger = new OpenAI({ baseURL, apiKey: "wrong-key-wrong-key", maxRetries: 0 });
    await refused(OpenAI.AuthenticationError, () => stranger.models.list(), undefined, "invalid_api_key");
  },

  async cancellation() {
    const running = async () => {
      const reply = await fetch(baseURL.replace(/\/v1$/, "/metrics"), { headers: { Authorization: `Bearer ${apiKey}` } });
      const lines = (await reply.text()).split("\n").filter((line) => /^ingot_(running|queued)_requests /.test(line));
      return lines.reduce((sum, line) => sum + Number(line.split(" ")[1]), 0);
    };
    const stream = await client.chat.completions.create({ model, messages, n: 64, max_tokens: 400, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      stream.controller.abort();
      break;
    }
    for (let tries = 0; tries < 600; ++tries) {
      if ((await running()) === 0) return;
      await new Promise((done) => setTimeout(done, 50));
    }
    assert.fail("what was left goes on");
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(JSON.stringify({ client: `javascript ${VERSION}`, check: name, result: "agrees" }));
}

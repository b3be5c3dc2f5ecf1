"""Many adapters under `ingot serve`, each with different weights (serving.py many), and the cost of adapters (serving.py adapters).
serving.py describes the command line."""
import asyncio
import json
import random
import statistics
import struct
import time

from served import ingot_server, percentile, run, streamed, tiny_model, whole

RANK = 8
MODULES = {"q_proj": "heads", "v_proj": "kv_heads"}  # and the unit in which the rows of each are counted
PROMPT = "My fellow Americans,"


def adapter_bytes(shape, seed):
    """adapter_model.safetensors of a bf16 adapter of rank 8 on q and v: values of either sign and size 2^-3 to 2^-1, determined by
    the seed. They are large enough for the texts to differ."""
    sizes = {}
    for layer in range(shape["layers"]):
        for module, heads in MODULES.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_"
            sizes[f"{prefix}A.weight"] = (RANK, shape["hidden"])
            sizes[f"{prefix}B.weight"] = (shape[heads] * shape["head_dim"], RANK)
    header, end = {}, 0
    for name, (rows, columns) in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [end, end + 2 * rows * columns]}
        end += 2 * rows * columns
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    number = int.from_bytes(random.Random(seed).randbytes(end), "little")
    repeated = int.from_bytes(b"\xFF\x80" * (end // 2), "little")  # sign, the exponent's last bit, mantissa
    exponents = int.from_bytes(b"\x00\x3E" * (end // 2), "little")
    return struct.pack("<Q", len(text)) + text + (number & repeated | exponents).to_bytes(end, "little")


def make_adapters(folder, shape, number):
    """Adapters a00000 and following, in PEFT's layout; existing ones are kept."""
    config = json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK,
                         "target_modules": list(MODULES), "bias": "none"})
    names = [f"a{i:05}" for i in range(number)]
    for seed, name in enumerate(names):
        if not (folder / name / "adapter_config.json").exists():
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "adapter_model.safetensors").write_bytes(adapter_bytes(shape, seed))
            (folder / name / "adapter_config.json").write_text(config)
    return names


def model_and_shape(options, folder):
    """The model, its shape, and the folder of adapters of that shape."""
    model = options.model or tiny_model(folder)
    shape = json.loads(run("model", "inspect", model, "--json"))
    return model, shape, folder / f"adapters-{shape['layers']}x{shape['hidden']}"


def request(name, tokens, prompt=PROMPT):
    return {"model": name, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}


async def ready_server(model, folder, *options):
    """The server and the seconds until it was ready."""
    server = ingot_server(model, folder, "--name", "base", "--context", "256", "--access-log", folder / "access.jsonl", *options)
    await server.wait_ready()
    return server, time.monotonic() - server.began


async def listed_adapters(server):
    return json.loads((await whole(server.port, "GET", "/v1/adapters"))[1])["data"]


def growth(samples, slack):
    """Medians of the memory in the first and the second half of the time, and whether it grew by more than `slack`."""
    half = len(samples) // 2
    first, last = (statistics.median(sample[1] for sample in part) for part in (samples[:half] or samples, samples[half:]))
    return first, last, last > max(1.05 * first, first + slack)


async def many(options, folder):
    model, shape, adapters = model_and_shape(options, folder)
    adapters = adapters.with_name(f"{adapters.name}-{options.adapters}")
    began = time.monotonic()
    names = make_adapters(adapters, shape, options.adapters)
    made = time.monotonic() - began
    one = (adapters / names[0] / "adapter_model.safetensors").stat().st_size
    draw = random.Random(1)
    sample = draw.sample(names, min(options.sample, len(names)))
    right = {name: json.loads(run("generate", "--model", model, "--adapter", adapters / name, "--prompt", PROMPT, "--max-tokens",
                                  options.tokens, "--device", "cpu", "--json"))["text"] for name in sample}
    server, start = await ready_server(model, folder, "--adapters", adapters, "--adapter-mib", str(options.adapter_mib),
                                       "--sequences", "32")
    listed = len(await listed_adapters(server))
    before = server.look()
    ended = asyncio.Event()
    watching = asyncio.create_task(server.watch(ended, 0.2))
    # One pass over all adapters, which fills the adapters' memory, then a second one in another order. Adapters with a
    # known text are at random places.
    work = draw.sample(sample + draw.sample(names, min(options.requests, len(names))), k=min(options.requests, len(names)) + len(sample))
    work += draw.sample(work, len(work))
    texts, wrong, firsts = {}, [], []
    again = None  # samples at the end of the first pass

    async def client(mine):
        nonlocal again
        for name in mine:
            again = again or (len(server.samples) if len(firsts) >= len(work) // 2 else None)
            answer = await streamed(server.port, request(name, options.tokens))
            firsts.append(answer.first)
            expected = right.get(name, texts.setdefault(name, answer.text))
            if answer.tokens is None or answer.text != expected:
                wrong.append(f"{name}: {answer.text!r} instead of {expected!r}")

    began = time.monotonic()
    await asyncio.gather(*(client(work[i::options.clients]) for i in range(options.clients)))
    seconds = time.monotonic() - began
    ended.set()
    await watching
    after = server.look()
    resident = sum(entry["resident"] for entry in await listed_adapters(server))
    server.end()
    texts.update(right)
    middle, last, grew = growth(server.samples[again:], 2**23)
    peak, most = max(s[1] for s in server.samples), max(s[2] for s in server.samples)
    allowed = before[1] + 2 * options.adapter_mib * 2**20 + 2**27  # adapters in use may take the budget once more
    if listed != len(names):
        wrong.append(f"{listed} adapters are listed")
    if grew or peak > allowed:
        wrong.append(f"memory when all are asked for again: {middle / 2**20:.0f}, then {last / 2**20:.0f}, {peak / 2**20:.0f} MiB at most")
    if most > before[2] + 3 * options.clients:
        wrong.append(f"{most} descriptors at most, {before[2]} before")
    same = len(texts) - len(set(texts.values()))
    lines = [f"{len(names)} adapters of rank {RANK} on q and v in bf16, {one / 2**20:.2f} MiB each, {one * len(names) / 2**30:.1f} GiB "
             f"in all, each with numbers of its own (made in {made:.0f} s, where lacking); {options.adapter_mib} MiB of host memory for "
             f"them, so that most have to be read again. Model: {shape['name']}.", "",
             f"- Ready {start:.2f} s after its start, {listed} listed.",
             f"- {options.clients} clients asked {len(work)} times for random ones, {options.tokens} greedy tokens each, as streams: "
             f"{len(work) / seconds:.1f} answers a second; first token after {percentile(firsts, 0.5):.3f} s (median), "
             f"{percentile(firsts, 0.99):.3f} s (99th percentile); {resident} adapters are in memory in the end.",
             f"- {len(wrong)} wrong. {len(sample)} adapters' texts come from `ingot generate --adapter`; those of the {len(texts) - len(sample)} "
             f"others were the same each time. {same} of {len(texts)} texts are like another adapter's.",
             f"- The server's memory: {before[1] / 2**20:.0f} MiB before; when all were asked for again median {middle / 2**20:.0f} MiB in "
             f"the first half of that time, {last / 2**20:.0f} MiB in the second; {peak / 2**20:.0f} MiB at most; descriptors {before[2]} before, {most} at most, {after[2]} after."]
    return lines, wrong[:5]


async def alone(server, name, tokens, prompt=PROMPT):
    """(seconds to the first token, seconds per token after it) of a request that runs alone."""
    began = time.monotonic()
    answer = await streamed(server.port, request(name, tokens, prompt))
    if answer.tokens is None:
        raise SystemExit(f"{name}: no answer: {answer.text}")
    return answer.first, (time.monotonic() - began - answer.first) / max(answer.tokens - 1, 1)


async def together(server, names, tokens):
    """The seconds until all of them, sent at once, have been answered, per token of the longest answer: about a step's time."""
    began = time.monotonic()
    answers = await asyncio.gather(*(streamed(server.port, request(name, tokens, f"{PROMPT} {i}")) for i, name in enumerate(names)))
    if None in (answer.tokens for answer in answers):
        raise SystemExit(f"no answer: {[answer.text for answer in answers if answer.tokens is None][0]}")
    return (time.monotonic() - began) / max(answer.tokens for answer in answers)


async def figures(options, folder):
    model, shape, adapters = model_and_shape(options, folder)
    base = adapters.with_name(f"{adapters.name}-figures")
    sets = {number: make_adapters(base / str(number), shape, number) for number in (5, 2000)}
    common = ("--sequences", "32", "--no-prefix-cache")
    repeats, tokens = options.repeats, options.tokens
    server, start = await ready_server(model, folder, "--adapters", base / "2000", *common)
    names = sets[2000]
    for name in names[:32]:  # loaded from here on
        await alone(server, name, 4)
    found = {"one": [], "two": [], "base": []}
    for i in range(repeats):  # alternating, so that other work of the machine affects all of them alike
        found["one"] += [await alone(server, names[0], tokens), await alone(server, names[0], tokens)]
        found["two"] += [await alone(server, names[0], tokens), await alone(server, names[1], tokens)]
        found["base"] += [await alone(server, "base", tokens)]
    cold, warm = [], []
    for name in names[100:100 + 10 * repeats]:
        cold.append((await alone(server, name, 4))[0])
        warm.append((await alone(server, name, 4))[0])
    batch = {"one": [], "32": [], "base": []}
    for i in range(repeats):
        batch["one"].append(await together(server, names[:1] * 32, tokens))
        batch["32"].append(await together(server, names[:32], tokens))
        batch["base"].append(await together(server, ["base"] * 32, tokens))
    few, start_of_few = await ready_server(model, folder, "--adapters", base / "5", *common)
    for name in sets[5]:
        await alone(few, name, 4)
    of_many, of_few = [], []
    for name in sets[5] * repeats:  # both servers have adapters with these names
        of_many.append(await alone(server, name, tokens))
        of_few.append(await alone(few, name, tokens))
    memory = [one.look()[1] / 2**20 for one in (few, server)]
    server.end()
    few.end()

    def ms(values):
        return f"{1000 * statistics.median(values):.2f}"

    def steps(results):
        return ms([step for _, step in results])

    lines = [f"{shape['name']}, adapters of rank {RANK} on q and v; answers of {tokens} tokens over HTTP as streams; medians of "
             f"{repeats} repeats or more, in turns.", "",
             "| milliseconds | |", "|---|---|",
             f"| a step of one sequence: no adapter | {steps(found['base'])} |",
             f"| one adapter again and again | {steps(found['one'])} |",
             f"| two resident adapters in turns | {steps(found['two'])} |",
             f"| first token: resident adapter | {ms(warm)} |",
             f"| first token: adapter that is read from its file, which the system has in memory | {ms(cold)} (added: {ms([c - w for c, w in zip(cold, warm)])}) |",
             f"| a step of 32 sequences: no adapter | {ms(batch['base'])} |",
             f"| one adapter | {ms(batch['one'])} |",
             f"| 32 adapters | {ms(batch['32'])} |",
             f"| a step of one sequence: 5 adapters registered | {steps(of_few)} (first token {ms([first for first, _ in of_few])}) |",
             f"| 2,000 registered | {steps(of_many)} (first token {ms([first for first, _ in of_many])}) |", "",
             f"A step of 32 is the time of all answers by their tokens, prompts included. Ready after {start_of_few:.2f} s with 5 adapters, "
             f"{start:.2f} s with 2,000; resident memory {memory[0]:.0f} and {memory[1]:.0f} MiB in the end."]
    return lines, []

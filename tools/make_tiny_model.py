#!/usr/bin/env python3
"""Makes recipes/models/tiny: the shape and the tokenizer of the model that recipes/tiny.yaml pretrains (no weights).

The tokenizer is a byte-level BPE with GPT-2's pre-tokenizer, trained on data/sotu/train.jsonl. The result is reproducible.
Needs the `tokenizers` package (0.23.3 made the committed files).

    tools/make_tiny_model.py [OUT]
"""
import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parent.parent
TEXT = ROOT / "data" / "sotu" / "train.jsonl"
VOCAB = 4096
CONTEXT = 512
END, START_TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 48,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "bfloat16",
}

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TOKENIZER_CONFIG = {
    "tokenizer_class": "GPT2Tokenizer",
    "add_prefix_space": False,
    "bos_token": END,
    "eos_token": END,
    "unk_token": END,
    "pad_token": END,
    "model_max_length": CONTEXT,
    "clean_up_tokenization_spaces": False,
    "chat_template": CHATML,
}


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[END, START_TURN, END_TURN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [json.loads(line)["text"] for line in TEXT.read_text(encoding="utf-8").splitlines()]
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    tokens = sum(len(tokenizer.encode(text).ids) for text in texts)
    print(f"{sum(map(len, texts))} characters are {tokens} tokens")
    return tokenizer


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "recipes" / "models" / "tiny"
    out.mkdir(parents=True, exist_ok=True)
    train().save(str(out / "tokenizer.json"), pretty=False)
    for name, content in (("config.json", CONFIG), ("tokenizer_config.json", TOKENIZER_CONFIG)):
        (out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

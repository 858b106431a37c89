"""Tiny inputs of the golden cases: texts, pairs, trees, and a model of each kind.

They are made by libraries and by commands alone, so that nothing here knows how regard is built.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import soundfile
import torch

from tests.golden.run import call
from tests.speech.tiny_whisper import save_whisper, sweep

CORPUS = [
    "the cat sat on the mat, and the dog sat on the log",
    "Paris is the capital of France; naïve café, déjà vu",
    "Hello world! How are you today? I'm fine, thanks.",
] * 9
WORDS = "the a cat dog king queen man woman sees likes old red house tree runs sat on".split()
TAGS = {"the": "DET", "cat": "NOUN", "dog": "NOUN", "sat": "VERB", "on": "ADP", "fine": "ADJ"}
NOUNS = {"chat": "cat", "chien": "dog", "roi": "king", "jardin": "garden", "livre": "book"}
NAMES = (
    "Alice Adam Amy Andrew Anna Anthony Ben Brian Carl Carol Charles Chris Claire Daniel "
    "David Diana Edward Emily Emma Eric Frank George Grace Harry Helen Henry Ian Jack James "
    "Jane Jason Joe John Julia Karen Kate Kevin Laura Lisa Lucy Mark Martin Mary Matthew "
    "Michael Nick Oliver Paul Peter Rachel Richard Robert Rose Ruth Sam Sarah Simon Sophie "
    "Stephen Susan Thomas Tom Victor William"
)
INDIRECT_OBJECTS = (  # with every word of the prompts that `ioi` makes
    "When Mary and John went to the bar, John handed a drink to",
    "After they met at the market, library, park, museum, kitchen, he passed a book to",
    "While they were waiting at the airport, beach, bakery, hotel, she offered a letter to",
    "As they left the bar, she gave a ticket, key, map, sandwich, lamp, coin, flower to",
    "Yesterday they walked to the bar, and brought, showed, sent, lent a drink to",
    "Once they had found the bar, Because they like it, Since they work at the bar",
    NAMES,
)

SMALL = "--dim 16 --depth 1 --heads 2 --length 16 --batch-tokens 64 --warm-up 2 --device cpu"
OFTEN = "--steps 6 --eval-every 3 --save-every 3 --log-every 1 --vocab 270"
ADAPT = "--steps 6 --save-every 3 --log-every 1 --length 16 --batch-tokens 64 --device cpu"
TUNE = "--steps 4 --lr 0.01 --dropout 0 --rows 8 --device cpu"
SEE = "--steps 4 --size 16 --patch 8 --dim 16 --depth 1 --heads 2 --rows 8 --device cpu"
DRAW = "--steps 4 --size 6 --codes 6 --dim 16 --depth 1 --heads 2 --rows 8 --device cpu"
HEAR = "--steps 4 --seconds 0.4 --dim 16 --depth 1 --heads 2 --rows 8 --device cpu"
GRAPHS = f"{TUNE} --dim 16 --depth 1 --heads 2 --save-every 2"
SAY = f"{SMALL.replace('length 16', 'length 64')} {OFTEN} --delta 0.5"
TOKENIZERS = {
    "gpt2": "--size 320 --specials pad,eos",
    "bert": "--kind wordpiece --size 200 --specials pad,unk,cls,sep,mask --wrap cls-sep",
    "t5": "--size 300 --specials pad,eos --wrap eos",
    "names": "--kind words --specials pad,eos",
}
TRAINED = {
    "ngram": "train ngram {text} --order 3",
    "bow": "train bow {text}",
    "chars": "train ngram {text} --order 3 --tokens chars",
    "classes": "train classes {text} --classes 4 --order 2",
    "vectors": "train w2v {text} --dim 8 --epochs 3 --min-count 1 --workers 1",
    "bayes": "train bayes {pairs}",
    "ibm1": "train ibm1 {pairs}",
    "run": f"train lm {{text}} {SMALL} {OFTEN}",
    "adapter": f"train lm {{text}} --init {{run}} --lora r=2 {ADAPT}",
    "classifier": f"tune classify {{reviews}} --model {{bert}} {TUNE}",
    "tagger": f"tune tag {{treebank}} --model {{bert}} {TUNE}",
    "seer": f"train image {{pictures}} --optimizer adamw {SEE}",
    "drawer": f"train pixels {{pictures}} --optimizer adamw {DRAW}",
    "hearer": f"train sound tones --optimizer adamw {HEAR}",
    "sayer": f"train nvae {{text}} {SAY}",
    "grader": f"tune regress {{grades}} --model {{bert}} {TUNE}",
    "graphs": f"train graph {{molecules}} {GRAPHS}",
    "citations": f"train graph {{nodes}} {{edges}} {GRAPHS}",
}
"""Inputs that regard makes itself; each command gets `--out` and the input's place."""


def build(base: Path) -> dict[str, str]:
    """Write every input below `base`; where each is, by the name that cases call it."""
    places = {"tmp": str(base)}
    for name, (file, content) in texts().items():
        (base / file).write_bytes(content.encode(errors="surrogateescape"))
        places[name] = str(base / file)
    for name in TOKENIZERS:
        places[name] = str(base / name)
        words = base / ("names.txt" if name == "names" else "corpus.txt")
        make(f"tokens train {words} --out {base / name} {TOKENIZERS[name]}")
    save_models(base)
    save_pictures(base / "pictures.npz")
    places["pictures"] = str(base / "pictures.npz")
    shutil.copytree(base / "t5", base / "t5_copy")
    shutil.copytree(base / "gpt2", base / "chat")
    (base / "chat" / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    places |= {name: str(base / name) for name in ("vit", "t5_copy", "chat", "whisper")}
    places["sound"] = str(base / "sound.wav")
    soundfile.write(places["sound"], sweep(2.35), 16000)
    for name, line in TRAINED.items():
        places[name] = str(base / name)
        make(f"{line.format(**places)} --out {base / name}")
    return places


def save_pictures(path: Path) -> None:
    """Twelve pictures of each of two classes: light and dark."""
    dice = np.random.default_rng(0)
    light = np.arange(24) % 2
    images = dice.integers(0, 120, (24, 16, 16, 3)) + 130 * light[:, None, None, None]
    np.savez(path, images=images.astype(np.uint8), labels=np.array(["dark", "light"])[light])


def make(line: str) -> None:
    """Run a command that has to succeed."""
    code, _, error = call(line.split())
    assert code == 0, f"regard {line}\n{error}"


# Files ------------------------------------------------------------------------------------------


def texts() -> dict[str, tuple[str, str]]:
    """Each text by name: its file and its content."""
    dice = random.Random(0)
    rows = [" ".join(dice.choices(WORDS, k=dice.randint(3, 11))) for _ in range(90)]
    train, test = rows[:80], rows[80:]
    kinds = "bad", "good"
    nouns = [dice.choices(list(NOUNS), k=dice.randint(1, 5)) for _ in range(46)]
    pairs = [
        (" ".join(f"le {word}" for word in line), " ".join(f"the {NOUNS[word]}" for word in line))
        for line in nouns
    ]
    return {
        "corpus": ("corpus.txt", lines(CORPUS)),
        "text": ("text.txt", lines(train)),
        "test": ("test.txt", lines(test)),
        "leak": ("leak.txt", lines([*test[:4], *train[:3]])),
        "latin1": ("latin1.txt", lines([*train[:3], "caf\udce9"])),
        "empty": ("empty.txt", ""),
        "molecules": (
            "molecules.csv",
            lines(["smiles,shape,split"])
            + lines(
                f"{'C' * n},chain,{split}\nC1{'C' * n}C1,ring,{split}"
                for n in range(2, 8)
                for split in ("train", "valid", "test")
            ),
        ),
        "nodes": (
            "nodes.csv",
            lines(["node,label,split,weight"])
            + lines(
                f"n{n},{('blue', 'red')[n % 2]},{('train', 'valid', 'test')[n // 4 % 3]},{n % 2}"
                for n in range(24)
            )
            + lines(["n24,red,train,heavy"]),
        ),
        "edges": (
            "edges.tsv",
            lines(["source\ttarget"])
            + lines(f"n{n}\tn{n + 2}" for n in range(22))
            + lines(["n3\tn3", "n3\tn99"]),
        ),
        "pairs": ("pairs.tsv", lines(f"{a} {n}\t{b} {n}" for n, (a, b) in enumerate(pairs[:40]))),
        "pairs_test": ("pairs_test.tsv", lines(f"{a}\t{b}" for a, b in pairs[40:])),
        "sources": ("sources.txt", lines(a for a, _ in pairs[40:43])),
        "table": ("table.csv", "text,ok\naab,yes\nab,yes\naaab,yes\nba,no\nb,no\nbba,no\n"),
        "positive": ("positive.txt", lines(["a b", "a a b", "a c b", "a b b", "a c c b"])),
        "negative": ("negative.txt", lines(["b a", "b", "c b a", "b b a", "c a", "c b"])),
        "treebank": ("trees.conllu", treebank(dice)),
        "words": ("words.txt", lines(["ab", "aabb", "aab", "ba", "ε"])),
        "schemas": ("schemas.tsv", SCHEMAS),
        "questions": ("questions.txt", ": people\nman woman king queen\nking queen man woman\n"),
        "similar": ("similar.tsv", "king\tqueen\t8.5\ncat\tdog\t7\nman\ttree\t1\nred\tsees\t0.5\n"),
        "prompts": ("prompts.tsv", PROMPTS),
        "labelled": ("labelled.tsv", lines(f"cat {n}\t{n % 2}" for n in range(9))),
        "unlabelled": ("unlabelled.csv", "text,mark\nthe cat,1\n"),
        "choices": ("choices.jsonl", CHOICES),
        "minimal_pairs": ("minimal_pairs.jsonl", MINIMAL_PAIRS),
        "prompts_bad": ("prompts_bad.tsv", "the cat\tthe\n"),
        "names_text": ("names.txt", lines(INDIRECT_OBJECTS)),
        "river": ("river.txt", lines(["the cat sat on the mat", "the old cat sees the dog"])),
        "money": ("money.txt", lines(["the red cat is fine", "a cat likes the king"])),
        "reviews": ("reviews.tsv", lines(f"{r}\t{kinds[' cat' in r]}" for r in rows[:40])),
        "grades": ("grades.tsv", lines(f"{row}\t{len(row.split())}" for row in rows[:40])),
        "receipt_bad": ("receipt_bad.json", "{}"),
        "answers": ("answers.jsonl", answers(dice)),
    }


def answers(dice: random.Random) -> str:
    """Prompts with an answer, and with a better and a worse one."""
    words = [dice.sample(WORDS, k=4) for _ in range(20)]
    named = (
        dict(zip(("prompt", "answer", "chosen", "rejected"), row, strict=True)) for row in words
    )
    return lines(map(json.dumps, named))


def count_letters(texts, prompts) -> list[int]:
    """A reward."""
    return [len(text) for text in texts]


def lines(rows) -> str:
    """Rows as lines of a file."""
    return "".join(f"{row}\n" for row in rows)


def treebank(dice: random.Random) -> str:
    """Sentences of words whose tag the word tells; each word hangs from a random one before."""
    rows = []
    for number in range(24):
        rows.append(f"# sent_id = {number}")
        for n, word in enumerate(dice.choices(list(TAGS), k=dice.randrange(5, 9)), 1):
            head = 0 if n == 1 else dice.randrange(1, n)
            rows.append(f"{n}\t{word}\t{word}\t{TAGS[word]}\t_\t_\t{head}\tdep\t_\t_")
        rows.append("")
    return lines(rows)


SCHEMAS = """text\ta\tb\tanswer\tpair
the dog likes the cat, and _ is fine\tthe dog\tthe cat\ta\t1
the dog likes the cat, and _ is old\tthe dog\tthe cat\tb\t1
the king sees the tree, and _ runs\tthe king\tthe tree\ta\t2
the king sees the tree, and _ is red\tthe king\tthe tree\tb\t2
"""
CHAT_TEMPLATE = """{% for m in messages %}
{{ m.role[0] }}: {{ m.content }}
{% endfor %}
{% if messages[0].content == "no" %}{{ raise_exception("not that") }}{% endif %}
{{ 'a:' if add_generation_prompt }}"""
CHOICES = """{"question": "the cat", "choices": ["sat", "on the mat"], "answer": 0}
{"question": "the dog", "choices": ["a", "the", "log"], "answer": "log"}
"""
MINIMAL_PAIRS = """{"sentence_good": "the cat sat", "sentence_bad": "cat the sat", "UID": "order"}
{"sentence_good": "the dogs are", "sentence_bad": "the dogs is", "UID": "agreement"}
"""
PROMPTS = """the cat sat on\tthe dog sat on\t the\t a
a cat sat on\ta dog sat on\t the\t a
is cat sat on\tis dog sat on\t the\t a
you cat sat on\tyou dog sat on\t the\t a
"""


# Models -----------------------------------------------------------------------------------------


def save_models(base: Path) -> None:
    """Folders as transformers saves them, every parameter random, beside their tokenizers."""
    small = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    decoder = dict(n_embd=16, n_layer=2, n_head=2, n_positions=40)
    for name in ("gpt2", "names"):
        size, ids = read_ids(base / name)
        ends = dict(bos_token_id=ids["eos"], eos_token_id=ids["eos"])
        save(base / name, "GPT2LMHeadModel", "GPT2Config", vocab_size=size, **decoder, **ends)
    size, _ = read_ids(base / "bert")
    more = dict(vocab_size=size, max_position_embeddings=40)
    save(base / "bert", "BertForMaskedLM", "BertConfig", **small, **more)
    size, ids = read_ids(base / "t5")
    shape = dict(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=size)
    ends = dict(eos_token_id=ids["eos"], pad_token_id=ids["pad"])
    start = dict(decoder_start_token_id=ids["pad"])
    save(base / "t5", "T5ForConditionalGeneration", "T5Config", **shape, **ends, **start)
    picture = dict(image_size=8, patch_size=4, num_labels=5)
    save(base / "vit", "ViTForImageClassification", "ViTConfig", **small, **picture)
    save_whisper(base / "whisper")


def read_ids(folder: Path) -> tuple[int, dict[str, int]]:
    """The size of a tokenizer, and the ids of its control tokens by role."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    roles = json.loads((folder / "tokenizer_config.json").read_text())
    named = {key.removesuffix("_token"): roles[key] for key in roles if key.endswith("_token")}
    return tokenizer.get_vocab_size(), {
        role: tokenizer.token_to_id(token)
        for role, token in named.items()
        if isinstance(token, str)
    }


def save(folder: Path, model: str, config: str, **sizes: int) -> None:
    """A model of transformers with weights drawn from a fixed seed."""
    import transformers

    built = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    built.save_pretrained(folder)

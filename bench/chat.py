"""Is a greedy conversation the one that transformers has, token by token, with the same template?

    python bench/chat.py FOLDER [--tokens 60]

FOLDER is a chat model that both open, such as SmolLM2 saved by `regard.load("….gguf").save`.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import regard

TALKS = (
    ("What is the capital of France?", "And of Italy?", "Which of the two is larger?"),
    ("Write a haiku about rain.", "Now one about snow, please.", "Thank you! Which is better?"),
    ("What is 17 + 25?", "Why?", "Say it in French."),
)


def main() -> None:
    """Hold each conversation twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=60)
    flags = parser.parse_args()
    kit = regard.load(flags.folder)
    tokenizer = AutoTokenizer.from_pretrained(flags.folder)
    model = AutoModelForCausalLM.from_pretrained(flags.folder, dtype=torch.float32).eval()
    for system in (None, "Answer in one short sentence."):
        for talk in TALKS:
            chat = regard.Chat(kit, system=system, max_new=flags.tokens)
            messages = [] if system is None else [{"role": "system", "content": system}]
            for question in talk:
                messages.append({"role": "user", "content": question})
                ids = tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, return_tensors="pt"
                )["input_ids"]
                with torch.inference_mode():
                    whole = model.generate(
                        ids, do_sample=False, max_new_tokens=flags.tokens, pad_token_id=0
                    )
                theirs = whole[0, ids.shape[1] :].tolist()
                ours = chat.say(question)
                anew = regard.chat(kit, messages, max_new=flags.tokens)
                same = ours.tokens == theirs and anew.tokens == theirs
                print(
                    f"{'equal' if same else 'DIFFERENT'}: {len(theirs)} tokens, "
                    f"{ours.read} of {ours.context} read | {question} → {ours.reply!r}"
                )
                if not same:
                    print("  transformers:", repr(tokenizer.decode(theirs)))
                messages.append({"role": "assistant", "content": ours.reply})


if __name__ == "__main__":
    main()

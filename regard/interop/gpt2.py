"""GPT-2 (Radford 2019): pre-norm decoder with learned positions and fused q, k, v.

ImageGPT (Chen 2020) is the same over colours of pixels, with a start token that is never predicted.
"""

from dataclasses import replace

from regard.interop import table
from regard.interop.table import SPLIT, TRANSPOSE, Key, ManyKeys, Table, TensorRow

GPT2 = Table(
    family="gpt2",
    variants={
        "GPT2LMHeadModel": table.language_model("transformer.", tied=True),
        "GPT2Model": table.BODY,
        "GPT2ForSequenceClassification": table.classifier(
            "transformer.", TensorRow("head.out", "score"), take="last"
        ),
        "GPT2ForTokenClassification": table.classifier(
            "transformer.", TensorRow("head.out", "classifier"), bias=True
        ),
    },
    config={
        "{front,decoder.block}.dim": Key("n_embd"),
        "decoder.depth": Key("n_layer"),
        "decoder.block.heads": Key("n_head"),
        "decoder.block.hidden": Key("n_inner", lambda config: 4 * config["n_embd"]),
        "front.length": Key("n_positions"),
        "decoder.block.act": table.act("activation_function", "gelu_new"),
        "decoder.block.eps": Key("layer_norm_epsilon", 1e-5),
    },
    fixed={"decoder.block.causal": True, "front.position": "learned", "front.kind": "text"},
    rows=(
        TensorRow("front.{tokens,positions}", "{wte,wpe}"),
        TensorRow("decoder.blocks.{i}.{attn,mlp}.norm", "h.{i}.{ln_1,ln_2}"),
        TensorRow("decoder.blocks.{i}.attn.{q,k,v}", "h.{i}.attn.c_attn", TRANSPOSE, SPLIT),
        TensorRow("decoder.blocks.{i}.attn.o", "h.{i}.attn.c_proj", TRANSPOSE),
        TensorRow("decoder.blocks.{i}.mlp.{up,down}", "h.{i}.mlp.{c_fc,c_proj}", TRANSPOSE),
        TensorRow("decoder.norm", "ln_f"),
    ),
    require={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    ignore=("*.attn.bias", "*.attn.masked_bias"),
)

COLOURS = ManyKeys(lambda config: config["vocab_size"] - 1, lambda size: {})
"""All but the last of the vocabulary, the start token."""
IMAGEGPT = replace(
    GPT2,
    family="imagegpt",
    variants={
        "ImageGPTForCausalImageModeling": replace(
            table.language_model("transformer.", tied=False),
            config=table.BODY.config | {"head.size": COLOURS},
        ),
        "ImageGPTModel": table.BODY,
    },
    config=GPT2.config | {"decoder.block.act": table.act("activation_function", "quick_gelu")},
    fixed=GPT2.fixed | {"decoder.block.norm": "rms"},
    require=GPT2.require | {"tie_word_embeddings": False},
)

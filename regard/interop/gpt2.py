"""GPT-2 (Radford 2019): pre-norm decoder with learned positions and fused q, k, v."""

from regard.interop.table import (
    LABELS,
    SPLIT,
    TRANSPOSE,
    Key,
    ManyKeys,
    Table,
    TensorRow,
    Variant,
    act,
)

CLASSES = (("front.vocab", Key("vocab_size")), ("head.size", LABELS))

GPT2 = Table(
    family="gpt2",
    variants={
        "GPT2LMHeadModel": Variant(
            prefix="transformer.",
            rows=(TensorRow("head.out", "lm_head"),),
            config=(
                ("{head.size,front.vocab}", Key("vocab_size")),
                ("head.tied", Key("tie_word_embeddings", True)),
            ),
        ),
        "GPT2Model": Variant(config=(("front.vocab", Key("vocab_size")),)),
        "GPT2ForSequenceClassification": Variant(
            "transformer.", (TensorRow("head.out", "score"),), CLASSES, {"head.take": "last"}
        ),
        "GPT2ForTokenClassification": Variant(
            "transformer.", (TensorRow("head.out", "classifier"),), CLASSES, {"head.bias": True}
        ),
    },
    config=(
        ("{front,decoder.block}.dim", Key("n_embd")),
        ("decoder.depth", Key("n_layer")),
        ("decoder.block.heads", Key("n_head")),
        (
            "decoder.block.hidden",
            ManyKeys(
                lambda config: config.get("n_inner") or 4 * config["n_embd"],
                lambda value: {"n_inner": value},
            ),
        ),
        ("front.length", Key("n_positions")),
        ("decoder.block.act", act("activation_function", "gelu_new")),
        ("decoder.block.eps", Key("layer_norm_epsilon", 1e-5)),
    ),
    fixed={"decoder.block.causal": True, "front.position": "learned", "front.kind": "text"},
    rows=(
        TensorRow("front.tokens", "wte"),
        TensorRow("front.positions", "wpe"),
        TensorRow("decoder.blocks.{i}.attn.norm", "h.{i}.ln_1"),
        TensorRow("decoder.blocks.{i}.attn.{q,k,v}", "h.{i}.attn.c_attn", TRANSPOSE, SPLIT),
        TensorRow("decoder.blocks.{i}.attn.o", "h.{i}.attn.c_proj", TRANSPOSE),
        TensorRow("decoder.blocks.{i}.mlp.norm", "h.{i}.ln_2"),
        TensorRow("decoder.blocks.{i}.mlp.up", "h.{i}.mlp.c_fc", TRANSPOSE),
        TensorRow("decoder.blocks.{i}.mlp.down", "h.{i}.mlp.c_proj", TRANSPOSE),
        TensorRow("decoder.norm", "ln_f"),
    ),
    require={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    ignore=("*.attn.bias", "*.attn.masked_bias"),
)

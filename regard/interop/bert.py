"""BERT (Devlin 2019), RoBERTa (Liu 2019), DistilBERT (Sanh 2019): post-norm encoders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.interop.table import (
    BODY,
    DUPLICATE,
    Fields,
    Key,
    ManyKeys,
    Table,
    TensorRow,
    Variant,
    act,
    classifier,
    language_model,
)

ENCODER_SIZES: Fields = {
    "{front,encoder.block}.dim": Key("hidden_size"),
    "encoder.depth": Key("num_hidden_layers"),
    "encoder.block.heads": Key("num_attention_heads"),
    "encoder.block.hidden": Key("intermediate_size"),
    "encoder.block.act": act("hidden_act", "gelu"),
}
"""Of BERT and ViT."""
VOCAB, MASKED = BODY.config, language_model("", tied=True).config
CLASSES = TensorRow("head.out", "classifier")
POOLED: dict[str, Any] = {"take": "first", "transform": "tanh", "bias": True}
"""Heads that read the first token through a layer of their own."""


def output(head: str) -> tuple[TensorRow, ...]:
    """Rows of a masked-language head; an untied one stores its bias twice."""
    bias = "head.out.bias"
    return (
        TensorRow("head.out.weight", f"{head}.decoder.weight"),
        TensorRow(bias, f"{head}.bias", when=lambda config: config.head.tied),
        TensorRow(bias, f"{head}.{{decoder.bias,bias}}", DUPLICATE, when=lambda c: not c.head.tied),
    )


BERT = Table(
    family="bert",
    variants={
        "BertModel": Variant(
            rows=(TensorRow("head.dense", "pooler.dense"),),
            config=VOCAB,
            fixed={"head.take": "first", "head.transform": "tanh"},
        ),
        "BertForMaskedLM": Variant(
            prefix="bert.",
            rows=(
                TensorRow("head.dense", "cls.predictions.transform.dense"),
                TensorRow("head.norm", "cls.predictions.transform.LayerNorm"),
                *output("cls.predictions"),
            ),
            config=MASKED
            | {
                "head.transform": act("hidden_act", "gelu"),
                "head.eps": Key("layer_norm_eps", 1e-12),
            },
            fixed={"{head.norm,head.bias}": True},
        ),
        "BertForSequenceClassification": classifier(
            "bert.", TensorRow("head.dense", "bert.pooler.dense"), CLASSES, **POOLED
        ),
        "BertForTokenClassification": classifier("bert.", CLASSES, bias=True),
    },
    config=ENCODER_SIZES
    | {
        "{encoder.block,front}.eps": Key("layer_norm_eps", 1e-12),
        "front.length": Key("max_position_embeddings", 512),
        "front.segments": Key("type_vocab_size", 2),
    },
    fixed={
        "encoder.block.norm_at": "post",
        "encoder.final_norm": False,
        "front.position": "learned",
        "front.norm": "layer",
        "front.kind": "text",
    },
    rows=(
        TensorRow("front.tokens", "embeddings.word_embeddings"),
        TensorRow("front.positions", "embeddings.position_embeddings"),
        TensorRow("front.segments", "embeddings.token_type_embeddings"),
        TensorRow("front.norm", "embeddings.LayerNorm"),
        TensorRow(
            "encoder.blocks.{i}.attn.{q,k,v}", "encoder.layer.{i}.attention.self.{query,key,value}"
        ),
        TensorRow("encoder.blocks.{i}.attn.o", "encoder.layer.{i}.attention.output.dense"),
        TensorRow("encoder.blocks.{i}.attn.norm", "encoder.layer.{i}.attention.output.LayerNorm"),
        TensorRow("encoder.blocks.{i}.mlp.up", "encoder.layer.{i}.intermediate.dense"),
        TensorRow("encoder.blocks.{i}.mlp.down", "encoder.layer.{i}.output.dense"),
        TensorRow("encoder.blocks.{i}.mlp.norm", "encoder.layer.{i}.output.LayerNorm"),
    ),
    require={"is_decoder": False, "position_embedding_type": "absolute"},
    ignore=("*embeddings.position_ids", "cls.predictions.decoder.bias", "cls.seq_relationship.*"),
)

ROBERTA = replace(
    BERT,
    family="roberta",
    variants={
        "RobertaModel": BERT.variants["BertModel"],
        "RobertaForMaskedLM": Variant(
            prefix="roberta.",
            rows=(
                TensorRow("head.dense", "lm_head.dense"),
                TensorRow("head.norm", "lm_head.layer_norm"),
                *output("lm_head"),
            ),
            config=MASKED | {"head.eps": Key("layer_norm_eps", 1e-12)},
            fixed={"{head.norm,head.bias}": True, "head.transform": "gelu"},
        ),
        "RobertaForSequenceClassification": classifier(
            "roberta.",
            TensorRow("head.dense", "classifier.dense"),
            TensorRow("head.out", "classifier.out_proj"),
            **POOLED,
        ),
        "RobertaForTokenClassification": classifier("roberta.", CLASSES, bias=True),
    },
    config=BERT.config
    | {  # Positions start after the padding id, so that many rows of the table are never used.
        "front.offset": ManyKeys(
            lambda config: 1 + config.get("pad_token_id", 1), lambda n: {"pad_token_id": n - 1}
        )
    },
    ignore=("*embeddings.position_ids", "lm_head.decoder.bias"),
)

DISTILBERT = Table(
    family="distilbert",
    variants={
        "DistilBertModel": BODY,
        "DistilBertForMaskedLM": Variant(
            prefix="distilbert.",
            rows=(
                TensorRow("head.dense", "vocab_transform"),
                TensorRow("head.norm", "vocab_layer_norm"),
                TensorRow("head.out", "vocab_projector"),
            ),
            config=MASKED | {"head.transform": act("activation", "gelu")},
            fixed={"{head.norm,head.bias}": True, "head.eps": 1e-12},
        ),
        "DistilBertForSequenceClassification": classifier(
            "distilbert.",
            TensorRow("head.dense", "pre_classifier"),
            CLASSES,
            **POOLED | {"transform": "relu"},
        ),
        "DistilBertForTokenClassification": classifier("distilbert.", CLASSES, bias=True),
    },
    config={
        "{front,encoder.block}.dim": Key("dim"),
        "encoder.depth": Key("n_layers"),
        "encoder.block.heads": Key("n_heads"),
        "encoder.block.hidden": Key("hidden_dim"),
        "encoder.block.act": act("activation", "gelu"),
        "front.length": Key("max_position_embeddings", 512),
    },
    fixed=BERT.fixed | {"{encoder.block,front}.eps": 1e-12},
    rows=(
        TensorRow("front.tokens", "embeddings.word_embeddings"),
        TensorRow("front.positions", "embeddings.position_embeddings"),
        TensorRow("front.norm", "embeddings.LayerNorm"),
        TensorRow(
            "encoder.blocks.{i}.attn.{q,k,v,o}", "transformer.layer.{i}.attention.{q,k,v,out}_lin"
        ),
        TensorRow("encoder.blocks.{i}.attn.norm", "transformer.layer.{i}.sa_layer_norm"),
        TensorRow("encoder.blocks.{i}.mlp.{up,down}", "transformer.layer.{i}.ffn.{lin1,lin2}"),
        TensorRow("encoder.blocks.{i}.mlp.norm", "transformer.layer.{i}.output_layer_norm"),
    ),
    ignore=("*embeddings.position_ids",),
)

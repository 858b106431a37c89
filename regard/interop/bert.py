"""BERT (Devlin 2019), RoBERTa (Liu 2019), DistilBERT (Sanh 2019): post-norm encoders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.interop import table
from regard.interop.table import DUPLICATE, Fields, Key, ManyKeys, Table, TensorRow, Variant

ENCODER_SIZES: Fields = {
    "{front,encoder.block}.dim": Key("hidden_size"),
    "encoder.depth": Key("num_hidden_layers"),
    "encoder.block.heads": Key("num_attention_heads"),
    "encoder.block.hidden": Key("intermediate_size"),
    "encoder.block.act": table.act("hidden_act", "gelu"),
}
"""Of BERT and ViT."""
VOCAB, MASKED = table.BODY.config, table.language_model("", tied=True).config
CLASSES = TensorRow("head.out", "classifier")
WORDS = (
    TensorRow("front.{tokens,positions}", "embeddings.{word,position}_embeddings"),
    TensorRow("front.norm", "embeddings.LayerNorm"),
)
POOLED: dict[str, Any] = {"take": "first", "transform": "tanh", "bias": True}
"""Heads that read the first token through a layer of their own."""


def layers(theirs: str, *parts: tuple[str, str]) -> tuple[TensorRow, ...]:
    """Rows of each block of an encoder, from our names of its parts and theirs."""
    return tuple(TensorRow(f"encoder.blocks.{{i}}.{o}", f"{theirs}.{{i}}.{t}") for o, t in parts)


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
                TensorRow("head.{dense,norm}", "cls.predictions.transform.{dense,LayerNorm}"),
                *output("cls.predictions"),
            ),
            config=MASKED
            | {
                "head.transform": table.act("hidden_act", "gelu"),
                "head.eps": Key("layer_norm_eps", 1e-12),
            },
            fixed={"{head.norm,head.bias}": True},
        ),
        "BertForSequenceClassification": table.classifier(
            "bert.", TensorRow("head.dense", "bert.pooler.dense"), CLASSES, **POOLED
        ),
        "BertForTokenClassification": table.classifier("bert.", CLASSES, bias=True),
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
        *WORDS,
        TensorRow("front.segments", "embeddings.token_type_embeddings"),
        *layers(
            "encoder.layer",
            ("attn.{q,k,v}", "attention.self.{query,key,value}"),
            ("attn.{o,norm}", "attention.output.{dense,LayerNorm}"),
            ("mlp.up", "intermediate.dense"),
            ("mlp.{down,norm}", "output.{dense,LayerNorm}"),
        ),
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
            rows=(TensorRow("head.{dense,norm}", "lm_head.{dense,layer_norm}"), *output("lm_head")),
            config=MASKED | {"head.eps": Key("layer_norm_eps", 1e-12)},
            fixed={"{head.norm,head.bias}": True, "head.transform": "gelu"},
        ),
        "RobertaForSequenceClassification": table.classifier(
            "roberta.", TensorRow("head.{dense,out}", "classifier.{dense,out_proj}"), **POOLED
        ),
        "RobertaForTokenClassification": table.classifier("roberta.", CLASSES, bias=True),
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
        "DistilBertModel": table.BODY,
        "DistilBertForMaskedLM": Variant(
            prefix="distilbert.",
            rows=(TensorRow("head.{dense,norm,out}", "vocab_{transform,layer_norm,projector}"),),
            config=MASKED | {"head.transform": table.act("activation", "gelu")},
            fixed={"{head.norm,head.bias}": True, "head.eps": 1e-12},
        ),
        "DistilBertForSequenceClassification": table.classifier(
            "distilbert.",
            TensorRow("head.dense", "pre_classifier"),
            CLASSES,
            **POOLED | {"transform": "relu"},
        ),
        "DistilBertForTokenClassification": table.classifier("distilbert.", CLASSES, bias=True),
    },
    config={
        "{front,encoder.block}.dim": Key("dim"),
        "encoder.depth": Key("n_layers"),
        "encoder.block.heads": Key("n_heads"),
        "encoder.block.hidden": Key("hidden_dim"),
        "encoder.block.act": table.act("activation", "gelu"),
        "front.length": Key("max_position_embeddings", 512),
    },
    fixed=BERT.fixed | {"{encoder.block,front}.eps": 1e-12},
    rows=(
        *WORDS,
        *layers(
            "transformer.layer",
            ("attn.{q,k,v,o}", "attention.{q,k,v,out}_lin"),
            ("{attn,mlp}.norm", "{sa,output}_layer_norm"),
            ("mlp.{up,down}", "ffn.{lin1,lin2}"),
        ),
    ),
    ignore=("*embeddings.position_ids",),
)

"""Regularisation after training, against the formulas of the papers written out in P-space."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

import regard
from regard.core.attention import Attention
from regard.errors import DataError, UsageError
from regard.model.batch import Batch
from regard.nvib import conversion
from regard.nvib.config import Temperatures
from regard.nvib.conversion import Prior, RegularisedAttention
from tests.conftest import make_folder

KINDS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(n_embd=16, n_layer=2, n_head=2, vocab_size=50)),
    "bert": (
        "BertForMaskedLM",
        "BertConfig",
        dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, vocab_size=50)
        | dict(intermediate_size=32, max_position_embeddings=40),
    ),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
        | dict(intermediate_size=32, vocab_size=50, max_position_embeddings=64),
    ),
    "qwen2": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1)
        | dict(intermediate_size=32, vocab_size=50, max_position_embeddings=64),
    ),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        dict(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=50)
        | dict(decoder_start_token_id=0),
    ),
    "marian": (
        "MarianMTModel",
        "MarianConfig",
        dict(d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2)
        | dict(decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=50)
        | dict(max_position_embeddings=40, pad_token_id=49, decoder_start_token_id=49)
        | dict(eos_token_id=0, bos_token_id=None, forced_eos_token_id=0),
    ),
}
HOW = [
    Temperatures(1.0, 0.0, 0.7),
    Temperatures(1.0, 0.4, -0.5),
    Temperatures(0.8, 0.3, 2.0),
    Temperatures(0.6, 0.0, 0.0),
]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """A folder of each kind, made when it is first asked for."""
    made = {}

    def find(kind):
        if kind not in made:
            name, config, sizes = KINDS[kind]
            made[kind] = make_folder(tmp_path_factory.mktemp(kind), name, config, **sizes)
        return made[kind]

    return find


@pytest.fixture
def kit_of(folder_of):
    """A tiny model whose priors are drawn, so that no text is needed."""

    def opened(kind, dtype="float64"):
        kit = regard.load(folder_of(kind), dtype=dtype, precision=None)
        draw = torch.Generator().manual_seed(7)
        priors = {}
        for name, site in conversion.find_sites(kit.model)[0].items():
            width = site.k.in_features
            mean = torch.randn(width, generator=draw, dtype=torch.float64) * 0.3
            variance = torch.rand(width, generator=draw, dtype=torch.float64) + 0.1
            energy = float((mean.square() + variance).sum()) * site.scale / 2
            priors[name] = Prior(mean, variance, energy, 0.8)
        conversion.PRIORS[kit.model] = {repr(None): priors}
        return kit

    return opened


def batch_of(kit, length=7, rows=2, seed=3):
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 48, (rows, length), generator=draw)
    if kit.model.config.target is None:
        return Batch(ids)
    return Batch(torch.randint(2, 48, (rows, 5), generator=draw), ids)


def turn(x, angle):
    """Rotary positions by complex numbers: x (…, K) turned by `angle` (…, K/2)."""
    half = x.shape[-1] // 2
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.cat([turned.real, turned.imag], -1)


def explicit(site, x, source, prior, how, causal, bias, base):
    """One row of denoising attention at evaluation, head by head, keys as wide as the model.

    x (T, P), source (S, P), bias (H, T, S) or None; `base` of rotary positions or None.
    """
    s, width = 1 / site.scale, site.width
    mu = torch.cat([prior.mean[None], how.mu * source + (1 - how.mu) * prior.mean])
    variance = (how.sigma**2 * prior.variance).expand(len(source), -1)
    variance = torch.cat([prior.variance[None], variance])  # (1 + S, P)
    log_alpha = source.square().sum(-1) / (2 * s) + how.alpha * prior.spread
    log_alpha = torch.cat([log_alpha.new_tensor([prior.energy]), log_alpha])
    log_pi = log_alpha - torch.logsumexp(log_alpha, 0)
    t = variance + s
    answers = []
    for head in range(site.heads):
        group = head * site.groups // site.heads
        own, shared = (slice(n * width, (n + 1) * width) for n in (head, group))
        zero = torch.zeros(width, dtype=x.dtype)
        k, v = site.k.weight[shared], site.v.weight[shared]
        k_bias = zero if site.k.bias is None else site.k.bias[shared]
        v_bias = zero if site.v.bias is None else site.v.bias[shared]
        query = x @ site.q.weight[own].T
        query = query if site.q.bias is None else query + site.q.bias[own]
        out = torch.zeros(len(x), width, dtype=x.dtype)
        for row in range(len(x)):
            seen = row + 1 if causal else len(source)
            asked = query[row].expand(1 + seen, -1)
            if (
                base is not None
            ):  # from each key's position to the query's; the prior is where it is
                rates = base ** (-torch.arange(0, width, 2, dtype=x.dtype) / width)
                away = torch.cat([torch.zeros(1), row - torch.arange(seen)]).to(x.dtype)
                asked = turn(asked, away[:, None] * rates)
            u, at = asked @ k, slice(0, 1 + seen)  # (1 + S, P)
            score = (u * mu[at] / t[at]).sum(-1) + asked @ k_bias / s + log_pi[at]
            score = score - 0.5 * (mu[at].square() / t[at] + t[at].log()).sum(-1)
            if bias is not None:
                score[1:] += bias[head, row, :seen]
            w = score.softmax(0)[:, None]
            mean = (w * variance[at] / t[at]).sum(0) * u[0] + (w * s / t[at] * mu[at]).sum(0)
            out[row] = v @ mean + v_bias
        answers.append(out)
    return torch.cat(answers, -1) @ site.o.weight.T + (0 if site.o.bias is None else site.o.bias)


def heard(model, batch):
    """What each attention read and answered in one run: name → (x, source, answer)."""
    seen, hooks = {}, []
    for name, part in model.named_modules():
        if isinstance(part, Attention):

            def listen(part, args, named, out, name=name):
                x, source = args[0], named.get("source")
                seen[name] = x, x if source is None else source, out

            hooks.append(part.register_forward_hook(listen, with_kwargs=True))
    model(batch)
    for hook in hooks:
        hook.remove()
    return seen


@torch.no_grad()
@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_attention_is_that_of_the_formulas(kit_of, kind, how):
    kit = kit_of(kind)
    conversion.attach(kit, how)
    priors = conversion.PRIORS[kit.model][repr(None)]
    seen = heard(kit.model, batch_of(kit))
    assert len(seen) == {"marian": 6, "t5": 6}.get(kind, 2)
    for name, (x, source, out) in seen.items():
        site = kit.model.get_submodule(name)
        assert type(site) is RegularisedAttention
        stack = kit.model.get_submodule(name.partition(".")[0])
        bias, base = None, None
        if stack.bias is not None and not site.cross:
            places = torch.arange(x.shape[1])[None]
            bias = stack.bias(places, places)[0].to(x)
        if stack.rotary is not None:
            base = stack.rotary.base
        causal = stack.config.block.causal and not site.cross
        for row in range(len(x)):
            given = x[row], source[row], priors[name], how, causal, bias, base
            expected = explicit(site, *given)
            assert torch.allclose(out[row], expected, rtol=0, atol=1e-9 * expected.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_listening_to_the_pattern_changes_nothing(kit_of, kind):
    kit = kit_of(kind)
    batch = batch_of(kit)
    conversion.attach(kit, HOW[1])
    fused = kit.model(batch)
    explicit_path, seen = kit.hooked.run(batch, "*.pattern")
    assert torch.allclose(fused, explicit_path, atol=1e-9 * fused.abs().max())
    for name, pattern in seen.items():
        keys = batch.inputs.shape[1] if "cross" in name or "encoder" in name else 7
        assert pattern.shape[-1] == 1 + keys  # column 0 is the prior
        assert torch.allclose(pattern.sum(-1), torch.ones(()).double())
        assert bool((pattern[..., 0] > 0).all())


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_strength_0_is_the_model_itself_and_undoing_gives_back_its_bits(kit_of, kind):
    kit = kit_of(kind, "float32")
    batch, before = batch_of(kit), dict(vars(kit.model))
    plain, names = kit.model(batch), set(kit.model.state_dict())
    for strength in (0, 0.0, {"encoder": 0, "decoder": 0}):
        regard.nvib.regularise(kit, strength)
        assert not any(isinstance(m, RegularisedAttention) for m in kit.model.modules())
    with kit.edit(nv=0.5):
        changed = kit.model(batch)
        assert set(kit.model.state_dict()) == names
    assert not torch.equal(changed, plain)
    assert torch.equal(kit.model(batch), plain)
    regard.nvib.regularise(kit, 0.5)
    assert torch.equal(kit.model(batch), changed)
    assert torch.equal(regard.nvib.restore(kit).model(batch), plain)
    assert dict(vars(kit.model)).keys() == before.keys()
    for part in kit.model.modules():
        if isinstance(part, Attention):
            assert type(part) is Attention and not part._buffers and not hasattr(part, "reading")


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_the_identity_falls_like_e_to_the_minus_c(kit_of, kind):
    kit = kit_of(kind)
    batch = batch_of(kit)
    plain, errors = kit.model(batch), []
    for bias in range(2, 42, 4):  # τ_α s_α
        conversion.attach(kit, Temperatures(1.0, 0.0, bias / 0.8))
        errors.append(float((kit.model(batch) - plain).abs().max()))
    assert errors[-1] < 1e-3
    small = [error for error in errors if 1e-9 < error < 1e-4 * float(plain.abs().max())]
    assert len(small) > 1
    for error, next_error in pairwise(small):
        assert next_error / error == pytest.approx(math.exp(-4), rel=0.1)


@torch.no_grad()
@pytest.mark.parametrize("how", HOW[:3], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_company_change_nothing(kit_of, kind, how):
    kit = kit_of(kind)
    conversion.attach(kit, how)
    batch = batch_of(kit)
    alone = kit.model(batch)
    real = torch.tensor([[True] * 7 + [False] * 3, [False] * 3 + [True] * 7])
    padded = torch.full((2, 10), 9)
    padded[real] = batch.ids.flatten()
    if batch.target is None:
        together = kit.model(Batch(padded, mask=real))
    else:
        side = torch.tensor([[True] * 5 + [False] * 2, [False] * 2 + [True] * 5])
        source = torch.full((2, 7), 9)
        source[side] = batch.inputs.flatten()
        together = kit.model(Batch(source, padded, mask=real, source_mask=side))
    assert torch.allclose(together[real], alone.flatten(0, 1), atol=1e-9 * alone.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("how", HOW[:3], ids=str)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bert"])
def test_a_cache_changes_nothing_also_when_its_rows_are_chosen_anew(kit_of, kind, how):
    kit = kit_of(kind)
    conversion.attach(kit, how)
    batch = batch_of(kit)
    whole, cache = kit.model(batch), kit.model.cache(2, 12)

    def step(ids, rows):
        source = batch.inputs[rows] if batch.target is not None else None
        return kit.model(Batch(ids) if source is None else Batch(source, ids), cache)

    first = step(batch.ids[:, :4], [0, 1])
    atol = 1e-9 * float(whole.abs().max())
    assert torch.allclose(first, whole[:, :4], atol=atol)
    assert torch.allclose(step(batch.ids[:, 4:5], [0, 1])[:, 0], whole[:, 4], atol=atol)
    own, twin = cache, cache.copy()
    assert torch.allclose(step(batch.ids[:, 5:6], [0, 1])[:, 0], whole[:, 5], atol=atol)
    cache = twin  # which has its own slots, here filled with other tokens
    step(batch.ids[:, :1], [0, 1])
    cache = own
    assert torch.allclose(step(batch.ids[:, 6:], [0, 1])[:, 0], whole[:, 6], atol=atol)
    cache.shorten(6)
    cache.select(torch.tensor([1, 1]))
    again = step(batch.ids[1:, 6:].expand(2, 1), [1, 1])[:, 0]
    assert torch.allclose(again, whole[1, 6].expand(2, -1), atol=atol)


@pytest.mark.parametrize("how", HOW[:3], ids=str)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5", "marian"])
def test_every_way_to_generate_writes_the_same(kit_of, kind, how):
    kit = kit_of(kind, "float32")
    conversion.attach(kit, how)
    batch, wanted = batch_of(kit, 3 if kit.model.config.target is None else 1), None
    for driver in ("plain", "fixed"):
        for strict in (False, True):
            kit.driver = driver
            beams = regard.decode.beam.BeamConfig(3)
            rows = kit.search(batch, 6, beams, regard.decode.sampling.Ends({1}), strict=strict)
            found = [row[0].tokens for row in rows]
            wanted = wanted or found
            assert found == wanted


@torch.no_grad()
def test_nothing_to_look_at_is_answered_by_the_prior(kit_of):
    kit = kit_of("marian")
    how = Temperatures(1.0, 0.0, 0.5)
    conversion.attach(kit, how)
    name = "decoder.blocks.0.cross"
    site, prior = kit.model.get_submodule(name), conversion.PRIORS[kit.model][repr(None)][name]
    view = regard.core.stack.cross_view(torch.zeros(1, 5, dtype=torch.bool))
    x = torch.randn(1, 3, 16, dtype=torch.float64)
    for source, ctx in (
        (torch.randn(1, 5, 16).double(), view),
        (x[:, :0], regard.core.attention.View()),
    ):
        expected = explicit(site, x[0], x[0, :0], prior, how, False, None, None)
        assert torch.allclose(site(x, ctx, source=source)[0], expected, atol=1e-10)


@torch.no_grad()
def test_the_prior_is_that_of_the_tokens_without_padding(kit_of):
    kit = kit_of("t5", "float32")
    pairs = [([5, 6, 7, 8], [0, 9, 4]), ([11, 12], [0, 30, 31, 32, 33]), ([20], [0, 7])]
    read, total = {}, conversion.measure
    for source, target in pairs:
        seen = heard(kit.model, Batch(torch.tensor([source]), torch.tensor([target])))
        for name, (_, given, _) in seen.items():
            read.setdefault(name, []).append(given[0].double())
    sides = [regard.model.batch.pad_rows(list(rows)) for rows in zip(*pairs, strict=True)]
    (source, source_mask), (target, mask) = sides
    whole = Batch(source, target, mask=mask, source_mask=source_mask)
    for name, prior in total(kit.model, [whole]).items():
        x = torch.cat(read[name])
        energy = x.square().sum(-1) * kit.model.get_submodule(name).scale / 2
        assert torch.allclose(prior.mean, x.mean(0), atol=1e-5)
        assert torch.allclose(prior.variance, x.var(0), atol=1e-4)
        assert prior.energy == pytest.approx(float(energy.mean()), rel=1e-5)
        assert prior.spread == pytest.approx(float(energy.std()), rel=1e-3)


def test_gradients_are_those_of_the_formulas(kit_of):
    kit = kit_of("llama")
    conversion.attach(kit, HOW[1])
    batch, weight = batch_of(kit, 4, 1), kit.model.decoder.blocks[0].attn.k.weight
    kit.model.requires_grad_(False)
    weight.requires_grad_(True)
    loss = kit.model(batch).square().mean()
    (grad,) = torch.autograd.grad(loss, weight)
    step = torch.zeros_like(weight)
    step[3, 4] = 1e-5
    with torch.no_grad():
        sides = []
        for sign in (1, -1):
            weight += sign * step
            sides.append(float(kit.model(batch).square().mean()))
            weight -= sign * step
    # The prior's own key stays that of the model when it was converted.
    assert torch.isfinite(grad).all() and grad[3, 4] == pytest.approx(
        (sides[0] - sides[1]) / 2e-5, rel=1e-4
    )


@pytest.mark.parametrize("kind", ["gpt2", "marian"])
def test_a_sequence_of_one_token(kit_of, kind):
    kit = kit_of(kind)
    with kit.edit(nv=0.4):
        for options in ({}, {"cache": kit.cache(1, 4)}):
            ids = [[5]] if kind == "gpt2" else [[5], [6]]
            args = ([[5]],) if kind == "gpt2" else ([[5]], [[6]])
            assert torch.isfinite(kit.logits(*args, **options)).all(), ids


@pytest.mark.parametrize("strength", [-0.1, 1.5, float("nan"), float("inf"), "much", True, None])
def test_a_bad_strength(kit_of, strength):
    with pytest.raises(UsageError, match="from 0 to 1"):
        regard.nvib.regularise(kit_of("gpt2"), strength)


@pytest.mark.parametrize("field", [{"alpha": math.nan}, {"sigma": -1.0}, {"mu": math.inf}])
def test_bad_temperatures(field):
    with pytest.raises(UsageError, match=next(iter(field))):
        Temperatures(**field)


def test_an_unknown_site_is_named(kit_of):
    with pytest.raises(UsageError, match="did you mean decoder"):
        regard.nvib.regularise(kit_of("gpt2"), {"decodr": 0.2})


def test_what_is_no_name_and_no_model_is_refused(kit_of):
    for strength in ({1: 0.2}, {None: 0.2}):
        with pytest.raises(UsageError, match="one of encoder, cross, decoder"):
            regard.nvib.regularise(kit_of("gpt2"), strength)
    with pytest.raises(UsageError, match="model = 3"):
        regard.nvib.regularise(3)


def test_a_mistake_leaves_the_strength_that_is_there(kit_of, monkeypatch):
    kit = regard.nvib.regularise(kit_of("gpt2"), 0.3)
    batch, tokens = batch_of(kit), torch.tensor([[5]])
    before = kit.model(batch)
    with pytest.raises(UsageError):
        regard.nvib.regularise(kit, 0.5, text="no tokenizer")
    assert kit.nv == (0.3, None) and torch.equal(kit.model(batch), before)
    monkeypatch.setattr(conversion, "calibration_batches", lambda *_: [Batch(tokens)])
    with pytest.raises(DataError, match="a text of 1 tokens"):  # known when all is off
        regard.nvib.regularise(kit, 0.5, text="one token")
    assert kit.nv == (0.0, None)
    assert torch.equal(kit.model(batch), regard.nvib.restore(kit).model(batch))
    with regard.nvib.regularised(kit, 0.3):
        assert torch.equal(kit.model(batch), before)


def test_what_cannot_be_converted_is_named(folder_of, tmp_path, capsys):
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=8)
    sizes |= dict(num_key_value_heads=2, intermediate_size=32, vocab_size=50)
    kit = regard.load(make_folder(tmp_path / "qwen3", "Qwen3ForCausalLM", "Qwen3Config", **sizes))
    with pytest.raises(UsageError, match="decoder.blocks.1.attn: its keys are normalised"):
        regard.nvib.regularise(kit, 0.2)
    assert regard.nvib.regularise(kit, 0) is kit
    kit = regard.load(folder_of("gpt2"))
    kit.model.decoder.blocks[1].attn.fusible = False  # as of a Gaussian similarity
    whole = torch.arange(2, 30).view(2, -1)
    conversion.PRIORS[kit.model] = {repr(None): conversion.measure(kit.model, [Batch(whole)])}
    regard.nvib.regularise(kit, 0.2)
    assert "stays as it is: decoder.blocks.1.attn" in capsys.readouterr().err
    kinds = [type(block.attn) for block in kit.model.decoder.blocks]
    assert kinds == [RegularisedAttention, Attention]


def test_models_without_attention_or_text_are_refused(folders):
    for strength in (0, 0.2):
        kit = regard.load(folders / "picture")
        kit.tokenizer = regard.load("fr-en").tokenizer
        if not strength:
            assert regard.nvib.regularise(kit, strength) is kit
            continue
        with pytest.raises(UsageError, match="a model that reads image"):
            regard.nvib.regularise(kit, strength)


def test_the_translator_of_the_box_changes_and_comes_back():
    kit = regard.load("fr-en")
    texts = ["Je suis un chat.", "Le conseil a décidé hier de fermer la vieille école."]

    def answers():
        return [one.text for one in kit.translate(texts, beams=1, doubt=False, max_new=6)]

    kernels = [part.kernel for part in kit.model.modules() if isinstance(part, Attention)]
    plain = answers()  # in one call of C, which must not serve the changed model
    sides = {}
    for side in ("encoder", "decoder", "cross"):
        with kit.edit(nv={side: Temperatures(0.2, 0.0, 10.0)}):
            sides[side] = answers()
    assert all(found != plain for found in sides.values())
    assert answers() == plain
    assert kernels == [part.kernel for part in kit.model.modules() if isinstance(part, Attention)]
    assert len(conversion.PRIORS[kit.model]) == 1  # measured once


@pytest.mark.parametrize("files", [None, "text"])
def test_a_text_of_ones_own_gives_another_prior(tmp_path, files):
    text = tmp_path / "pairs.tsv"
    text.write_text("un\tone\ndeux\ttwo\n")
    kit = regard.load("fr-en")
    regard.nvib.regularise(kit, 0.1, text=text if files else None)
    (found,) = conversion.PRIORS[kit.model].values()
    assert torch.isfinite(found["decoder.blocks.0.cross"].variance).all()
    short = {name: float(prior.variance.mean()) for name, prior in found.items()}
    assert (short["encoder.blocks.0.attn"] < 0.19) == bool(files)


def test_the_translator_that_a_command_opens_is_regularised_too():
    kit = regard.load("fr-en")
    with kit.edit(nv=0.2):
        inside = kit.translate("Je suis un chat.")
    found = regard.translate("Je suis un chat.", nv=0.2)  # packed, without weights to read
    assert found == inside


def test_an_edit_gives_back_the_strength_that_was_there(kit_of):
    kit = kit_of("gpt2")
    batch = batch_of(kit)

    def logits():
        return kit.model(batch)

    plain = logits()
    regard.nvib.regularise(kit, 0.3)
    before = logits()
    with kit.edit(nv=0.6):
        assert not torch.equal(logits(), before)
        with kit.edit(nv={"decoder": 1.0}):
            pass
        assert not torch.equal(logits(), before)
    assert torch.equal(logits(), before)
    with pytest.raises(UsageError), kit.edit(nv=0.5, nv_text="no tokenizer"):
        pass
    assert torch.equal(logits(), before)
    assert torch.equal(regard.nvib.restore(kit).model(batch), plain)
    with kit.edit(nv=0.6):
        pass
    assert torch.equal(logits(), plain)

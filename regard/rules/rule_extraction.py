"""What a network learnt, opened: an automaton by questions, counterfactual edits, its heads.

What a network is worth is said by lines that it did not see. Few lines teach it nothing that could
be opened; then a second network is taught the best rule that was found, from thousands of strings
made for it, and is opened instead: it shows how a Transformer keeps that rule, and whether the
lines follow it too (Weiss, Goldberg and Yahav 2018 for the automaton).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import torch

from regard.ambient import current, progress
from regard.formal.dfa import Word
from regard.formal.lstar import disagreements, learn_dfa
from regard.formal.state_diagram import dot
from regard.look.attention_patterns import patterns
from regard.look.hooks import HookedModel
from regard.look.patching import Goal, ablation_values, head_sites, measure_sets
from regard.model.batch import Batch
from regard.rules import results
from regard.rules.results import Counterfactuals, Discovery, ExtractedAutomaton, NeuralStudy
from regard.rules.rule import Accepts
from regard.rules.string_sampler import StringSampler
from regard.rules.tiny_transformer import Network, cross_validate, train_network

FRESH = 2000  # words that an automaton is held against
ALIKE = 0.993  # agreement that is enough: a network errs on some words that no rule tells
ENOUGH = 400  # lines from which a network is opened that knows nothing but them
ALONE = 4000  # the same where a rule is known that most of them keep: fewer leave it in error
KNOWN = 0.9  # of the lines, which such a rule has right
TAUGHT = 10_000  # strings that a rule is taught with
STEPS = 3000
VALIDATED = 2000  # lines that are trained on at most while validating


def study_network(discovery: Discovery, seconds: float = 60.0, blank: str = " ") -> NeuralStudy:
    """Validate on the lines, train the network that is opened, and open it.

    The best rule that was found is held beside it. No seed is validated after half of the
    `seconds`; the questions of the automaton may take all of them. `blank` stands between tokens.
    """
    words = [line.tokens for line in discovery.examples]
    labels = [line.positive for line in discovery.examples]
    best = discovery.hypotheses[0] if discovery.hypotheses else None
    accepts = best.accepts if best is not None else None
    seed = current().seed
    some = Random(seed).sample(range(len(words)), min(VALIDATED, len(words)))
    few = len(some) <= 128
    by_seed = cross_validate(
        [words[n] for n in some],
        [labels[n] for n in some],
        200 if few else 600,
        seed,
        folds=10 if few else 5 if len(some) < ENOUGH else 3,
        seeds=3 if len(some) < ENOUGH else 1,
        seconds=seconds / 2,
    )
    known = accepts is not None and np.mean([*map(accepts, words)] == np.array(labels)) >= KNOWN
    taught = accepts is not None and len(words) < (ALONE if known else ENOUGH)
    lesson = list(words), list(labels)
    if accepts is not None and taught:
        lesson = StringSampler(words, seed, shorter=True).lesson(accepts, TAUGHT)
    alphabet = sorted({symbol for word in words for symbol in word})
    network = train_network(*lesson, STEPS, seed, alphabet)
    agreement = None
    if accepts is not None:
        fresh = StringSampler(words, 11).draw(FRESH)
        agreement = network.accuracy(fresh, [bool(accepts(word)) for word in fresh])
    with progress("opening a network") as say:
        say("its automaton")
        automaton = extract_automaton(network, words, seconds, seed, blank)
        say("edits and heads")
        return NeuralStudy(
            cross_validated=sum(by_seed) / len(by_seed),
            by_seed=by_seed,
            majority=max(Counter(labels).values()) / len(labels),
            taught=taught,
            accuracy=network.accuracy(words, labels),
            agreement_with_rule=agreement,
            edits=counterfactuals(network, words, accepts),
            automaton=automaton,
            heads=head_uses(network, lesson[0]),
            rule=best.rule if best is not None else "none",
        )


def extract_automaton(
    network: Network, words: Sequence[Word], seconds: float = 60.0, seed: int = 0, blank: str = " "
) -> ExtractedAutomaton:
    """The automaton of a network, learnt by asking it, checked on words that were held out."""
    draw = StringSampler(words, seed).draw
    decide, known = network.decide, network.alphabet
    learnt = learn_dfa(decide, known, draw, tries=FRESH, seconds=seconds, enough=ALIKE)
    held = list(dict.fromkeys(StringSampler(words, seed + 1).draw(FRESH)))
    answers = dict(zip(held, network.decide(held), strict=True))
    wrong = sorted(disagreements(learnt.dfa, held, list(answers.values())), key=len)
    states = len(learnt.dfa.moves)
    return ExtractedAutomaton(
        states=states,
        agreement=1 - len(wrong) / max(1, len(held)),
        fresh=len(held),
        queries=learnt.queries,
        exact=learnt.exact,
        differs=[results.Disagreement(blank.join(word), answers[word]) for word in wrong[:5]],
        dot=dot(learnt.dfa) if states <= results.SMALL_STATES else None,
        dfa=learnt.dfa,
    )


def counterfactuals(
    network: Network, words: Sequence[Word], accepts: Accepts | None
) -> Counterfactuals:
    """Replace one symbol of a word by another, again and again."""
    strings, before, after, replaced = StringSampler(words, 7), [], [], []
    known = network.alphabet
    long = [word for word in words if word]
    for _ in range(FRESH if long and len(known) > 1 else 0):
        word = strings.rng.choice(long)
        at = strings.rng.randrange(len(word))
        other = strings.rng.choice([symbol for symbol in known if symbol != word[at]])
        before.append(word)
        after.append(word[:at] + (other,) + word[at + 1 :])
        replaced.append(word[at])
    flips = [a != b for a, b in zip(network.decide(before), network.decide(after), strict=True)]
    seen, changed = Counter(replaced), Counter(s for s, f in zip(replaced, flips, strict=True) if f)
    share = None
    if accepts is not None and flips:
        rule = [accepts(a) != accepts(b) for a, b in zip(before, after, strict=True)]
        share = sum(a == b for a, b in zip(flips, rule, strict=True)) / len(flips)
    rates = {symbol: changed[symbol] / seen[symbol] for symbol in seen}
    ordered = dict(sorted(rates.items(), key=lambda pair: -pair[1]))
    return Counterfactuals(len(flips), share, ordered)


@torch.no_grad()
def head_uses(network: Network, words: Sequence[Word]) -> list[results.HeadUse]:
    """Every head, the one that matters most first."""
    chosen = [word for word in words if word][:256]
    batch = network.batch(chosen).to(network.model.device)
    hooked, said = HookedModel(network.model), network.margins(chosen) > 0
    goal = Goal(said.long(), (~said).long(), torch.zeros(len(chosen), dtype=torch.long))
    sites = head_sites(hooked)
    none, each = torch.zeros(1, len(sites), dtype=torch.bool), torch.eye(len(sites)).bool()
    means = ablation_values(hooked, sites, "mean", batch)
    margins = measure_sets(hooked, batch, goal, sites, torch.cat((none, each)), means)
    whole = float(margins[0].mean())
    looks = looked_at(network, hooked, batch)
    uses = []
    for n, site in enumerate(sites):
        block, head = int(site.tap.split(".")[2]), site.head or 0
        kept = float(margins[n + 1].mean()) / whole
        flips = float((margins[n + 1] < 0).float().mean())
        uses.append(results.HeadUse(block, head, kept, flips, looks[block, head]))
    return sorted(uses, key=lambda use: use.kept)


def looked_at(
    network: Network, hooked: HookedModel, batch: Batch
) -> dict[tuple[int, int], list[results.SymbolLink]]:
    """For each block and head, the two pairs of symbols with most weight above an equal share."""
    names = ["[class]", "[unknown]", *network.alphabet]
    ids, real = batch.inputs.cpu(), batch.mask
    real = torch.ones_like(ids, dtype=torch.bool) if real is None else real.cpu()
    pair = ids[:, :, None] * len(names) + ids[:, None, :]  # (B, T, S)
    both = real[:, :, None] & real[:, None, :]
    equal = both.float() / real.sum(1)[:, None, None]
    cells = pair[both]
    expected = torch.zeros(len(names) ** 2).index_add_(0, cells, equal[both])
    looks = {}
    for path, weights in patterns(hooked, batch).items():
        for head in range(weights.shape[1]):
            weight = weights[:, head].float().cpu()[both]
            total = torch.zeros(len(names) ** 2).index_add_(0, cells, weight)
            lift = torch.where(expected > 0.01 * float(expected.sum()) / len(names), total, 0)
            ratio = lift / expected.clamp_min(1e-9)
            looks[int(path.split(".")[2]), head] = [
                results.SymbolLink(names[n // len(names)], names[n % len(names)], float(ratio[n]))
                for n in ratio.topk(2).indices.tolist()
            ]
    return looks
